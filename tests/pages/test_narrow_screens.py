"""What depends on the width of the window: lines of subtitles, and which columns of tables come first."""

import json

import folders
import plotly.graph_objects as go
import pytest
import synthetic
from drawn_page import calm, said, tables
from streamlit.testing.v1 import AppTest

from fusescope.charts import template
from fusescope.charts.escape import shown
from pages._ui.guard import opening
from pages._ui.widgets import screen

LONG = "NVIDIA H200 · float16 · 20 Nov 2026 11:36 · kernel time (graph replay), warm cache"


@pytest.fixture
def width(monkeypatch):
    def set_to(pixels):
        monkeypatch.setattr(screen, "width", lambda: pixels)

    return set_to


def plot_height(layout) -> float:
    return layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]


@pytest.mark.parametrize(("characters", "lines"), [(200, 1), (58, 2), (40, 3)])
def test_a_subtitle_is_wrapped_by_the_room_it_has_and_the_plot_keeps_its_size(characters, lines):
    fig = template.figure("Speed-up", LONG, height=380)
    given, made = fig.to_plotly_json()["layout"], shown(fig, characters).to_dict()["layout"]
    subtitle = made["title"]["text"].partition("<br>")[2]
    assert subtitle.count("<br>") == lines - 1
    assert plot_height(made) == plot_height(given)
    top = lambda layout: (1 - layout["title"]["y"]) * layout["height"]  # noqa: E731
    assert top(made) == pytest.approx(top(given))
    assert shown(fig, characters) is shown(fig, characters), "made once"


def test_a_title_is_wrapped_too_where_it_would_be_cut():
    title = "Execution mode, time and speed-up over sdpa or eager of whole models"
    fig = template.figure(title, "NVIDIA H200", height=380)
    assert title in shown(fig, 130).to_dict()["layout"]["title"]["text"]
    made = shown(fig, 58).to_dict()["layout"]
    head = made["title"]["text"].partition("</b>")[0].removeprefix("<b>")
    assert max(map(len, head.split("<br>"))) <= 42 and head.replace("<br>", " ") == title
    assert plot_height(made) == plot_height(fig.to_plotly_json()["layout"])


def test_a_chart_with_another_title_is_left_alone():
    fig = template.figure("Speed-up", LONG)
    fig.update_layout(title_text="<b>of its own</b>")
    assert shown(fig, 200).to_dict()["layout"]["title"]["text"] == "<b>of its own</b>"
    assert shown(go.Figure(), 200).to_dict()["layout"].get("title") is None


@pytest.mark.parametrize(("pixels", "whole"), [(320, False), (1440, True)])
def test_a_pages_charts_use_their_width(draw, profiles, width, pixels, whole):
    run = synthetic.run()
    folders.write(profiles, run, synthetic.point())
    width(pixels)
    charts = draw("kernels", run=run.id).get("plotly_chart")
    titles = [json.loads(c.proto.spec)["layout"]["title"]["text"] for c in charts]
    (subtitle,) = [t.partition("</b><br>")[2] for t in titles if "Speed-up over" in t]
    first = subtitle.partition("<br>")[0]
    assert first.endswith("kernel time, warm") == whole


@pytest.mark.parametrize(
    ("cookie", "pixels"), [({}, 1280), ({"fusescope_width": "400"}, 400), ({"fusescope_width": "x"}, 1280)]
)
def test_the_browser_says_its_width_before_it_connects(monkeypatch, cookie, pixels):
    monkeypatch.setattr(screen, "st", type("st", (), {"context": type("c", (), {"cookies": cookie})}))
    assert screen.width() == pixels and screen.narrow() == (pixels == 400)
    assert any(screen.COOKIE in script and "innerWidth" in script for script in opening.scripts())


def test_the_list_of_runs_begins_with_what_decides_on_a_narrow_screen(draw, few, width):
    wide = list(draw("runs").dataframe[0].value.columns)
    width(400)
    at = draw("runs")
    columns = list(at.dataframe[0].value.columns)
    assert columns[0] == "open" and columns[1] == "run" and set(columns) == set(wide)
    known = [name for name in ("run", "best speed-up", "over") if name in wide]
    assert columns[1 : 1 + len(known)] == known and "Swipe the table sideways for" in said(at.caption)
    asked = draw("runs", columns="kind,device").dataframe[0].value.columns
    assert list(asked) == ["open", "device", "kind"], "columns that were chosen keep their order"


def test_all_models_are_lines_on_a_narrow_screen(draw, recorded, width):
    width(400)
    at = calm(draw("models", show="all models"))
    (rows,) = [t for t in tables(at) if t and "mode" in t[0]]
    assert list(rows[0])[:3] == ["model", "batch × seq", "speed-up"] and any(
        "▲" in r["speed-up"] for r in rows
    )
    assert any(e.label == "As a map, scrolled sideways" for e in at.expander)


@pytest.mark.parametrize(("pixels", "shaded"), [(400, True), (1440, False)])
def test_a_table_cut_by_a_narrow_screen_has_a_shaded_edge(pixels, shaded, width):
    """Streamlit's own shows neither a bar nor a shade where its last column ends with the screen."""
    width(pixels)
    at = AppTest.from_function(_wide_table).run()
    assert any(table and "block order" in table[0] for table in tables(at)) == shaded
    assert len(at.dataframe) == (not shaded)


def _wide_table():
    import pandas as pd

    from pages._ui.widgets import elements

    elements.table(pd.DataFrame({"block order": ["longest first"], "waves": [4]}), "waves")
