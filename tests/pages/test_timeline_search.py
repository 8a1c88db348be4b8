"""Search in the timeline: what is found, marked, and gone to from one match to the next."""

import profiles_on_disk as disk
import pytest
from drawn_page import calm, query, said

from fusescope.charts.profile import timeline
from fusescope.store import timeline as binned

RUN = "20261120-120000-trace-aaaaaa"


@pytest.fixture
def path(profiles):
    """Three steps of two kernels each, gemm for 30 µs and another for 60 µs."""
    return disk.trace(profiles, RUN)


def test_matches_are_of_any_case_and_by_start(path):
    lane = binned.events(path, binned.lanes(path)["GPU 0 stream 7"])
    starts, ends = binned.matches(lane, "GeMM")
    assert [int(n) for n in ends - starts] == [30_000] * 3 and list(starts) == sorted(starts)
    assert not len(binned.matches(lane, "nothing like it")[0])
    view = binned.window(lane)
    marks = {"GPU 0 stream 7": [int(t) for t in starts], "another lane": [1]}
    fig = timeline.lanes({"GPU 0 stream 7": view}, view["begin_ns"], marks=marks)
    arrows = [t for t in fig.data if t.type == "scatter" and t.marker.symbol == "triangle-down"]
    assert len(arrows) == 1 and len(arrows[0].x) == 3


def test_the_next_match_is_gone_to_and_the_search_is_in_the_url(draw, path):
    at = draw("profiler", run=RUN, view="Timeline", find="gemm")
    assert "3 matches, 90.0 µs total, the longest 30.0 µs." in said(at.caption)
    at.button(key="profiler/find/longest match").click()
    first = query(calm(at.run()))
    assert first["find"] == "gemm" and "span" in first
    at.button(key="profiler/find/match ›").click()
    second = query(calm(at.run()))
    assert int(second["span"].partition("-")[0]) > int(first["span"].partition("-")[0])
    at.button(key="profiler/find/‹ match").click()
    assert query(calm(at.run()))["span"] == first["span"]
    at.text_input(key=f"profiler/{RUN}/find").set_value("nothing like it")
    assert "Nothing in these lanes has such a name." in said(calm(at.run()).caption)
