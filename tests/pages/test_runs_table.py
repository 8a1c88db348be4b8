"""Lists of runs: cut titles open in full, columns that all rows share are named, searches match the text."""

import dataclasses

import folders
import profiles_on_disk as disk
import pyarrow as pa
import pytest
import synthetic
from drawn_page import said
from streamlit.proto.SelectWidgetFilterMode_pb2 import SelectWidgetFilterMode


def test_a_text_too_long_for_its_column_ends_in_an_ellipsis_and_opens_whole(draw, profiles):
    title = "Attention in half precision over every mask and every shape that was measured"
    run = synthetic.run("20261120-100000-bench-abcdef", title=title)
    folders.write(profiles, run, [], samples=False)
    at = draw("runs")
    drawn = at.dataframe[0].proto.arrow_data.styler.display_values
    shown = pa.ipc.open_stream(drawn).read_pandas()["run"][0]
    assert shown.endswith("…") and title.startswith(shown[:-1]) and 30 < len(shown) < 60
    assert at.dataframe[0].value["run"][0] == title and "Double-click a cell" in said(at.caption)


def test_columns_that_say_the_same_in_all_lines_are_said_under_the_table(draw, profiles):
    ids = [f"2026112{n}-100000-bench-abcde{n}" for n in (0, 1)]
    for run_id in ids:
        folders.write(profiles, synthetic.run(run_id), [], samples=False)
    at = draw("runs")
    assert "device" not in at.dataframe[0].value.columns
    assert "The same in all lines: device H200, dtype float16" in said(at.caption)
    other = synthetic.run("20261122-100000-bench-abcde2")
    other = dataclasses.replace(other, environment=dict(other.environment) | {"device_name": "NVIDIA B200"})
    folders.write(profiles, other, [], samples=False)
    at = draw("runs")
    assert "device" in at.dataframe[0].value.columns and "lines: device" not in said(at.caption)


@pytest.mark.parametrize("view, key", [("Overview", "profiler/run/widget"), ("Compare", "against")])
def test_what_is_typed_finds_lines_that_have_it(draw, profiles, view, key):
    """ "gpt" found "BERT-base, SDPA in a CUDA graph, fp16": its letters are there in this order."""
    disk.trace(profiles, disk.TRACE)
    disk.trace(profiles, disk.OTHER)
    at = draw("profiler", run=disk.OTHER, view=view)
    (box,) = [box for box in at.selectbox if key in box.key]
    assert box.proto.filter_mode == SelectWidgetFilterMode.FILTER_MODE_CONTAINS
