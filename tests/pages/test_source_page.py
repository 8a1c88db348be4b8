"""The Profiler with a source page of Nsight Compute: the hottest line first, then every line."""

import re

import profiles_on_disk as disk
import pytest
from drawn_page import calm, query, said

from fusescope.charts.profile import source_lines

RUN = "20261120-120300-import-dddddd"


@pytest.fixture
def page(profiles):
    return disk.source_page(profiles, RUN)


def texts(at) -> str:
    return said([*at.markdown, *at.caption, *at.html])


def test_the_hottest_line_is_said_first_and_each_line_listed(draw, page):
    at = draw("profiler", run=RUN, view="Nsight Compute")
    text = texts(at)
    assert "k.cu:13 has 90.0 % of 100 samples, mostly long scoreboard" in text.replace("\\", "")
    assert "float a = x" in text
    raw = "\n".join([m.value for m in at.markdown] + [h.value for h in at.get("html")])
    assert not re.search(r"(?<!\\)<img", raw)
    at.segmented_control(key=f"profiler/{RUN}/listing").set_value("sass")
    assert "0x20 has 90.0 %" in texts(calm(at.run())) and query(at)["listing"] == "sass"


@pytest.mark.slow
@pytest.mark.parametrize("view", ["Overview", "Time breakdown", "Timeline", "Tables", "Roofline", "Compare"])
def test_every_other_view_says_what_it_lacks(draw, page, view):
    at = draw("profiler", run=RUN, view=view)
    assert not at.exception
    if view == "Overview":
        assert "of 100 samples" in texts(at)


def test_reasons_never_add_up_to_more_than_a_lines_samples():
    row = {
        "kind": "sass",
        "address": "0x10",
        "file": None,
        "line": None,
        "text": "<b>EXIT</b>",
        "samples": 10,
    }
    rows = [row | {"stall_lg": 9, "stall_wait": 9}, row | {"samples": None}, row | {"samples": 30}]
    fig = source_lines.bars(rows, "Warp stalls by instruction")
    assert sum(sum(bar.x) for bar in fig.data) == pytest.approx(100)
    assert "<b>EXIT" not in str(fig.layout.annotations)
    assert "No line has a sample" in str(source_lines.bars([row | {"samples": None}], "x").layout.annotations)
