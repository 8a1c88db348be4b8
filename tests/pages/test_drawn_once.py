"""What a page sends of a chart is made once, and a browser draws it once: Streamlit shows plotly each figure
twice, and what plotly takes for a change is drawn again (seen in Chromium with Plotly.react)."""

import json
from dataclasses import replace

import folders
import numpy as np
import plotly.graph_objects as go
import pytest
import synthetic
from drawn_page import calm

from fusescope import models
from fusescope.charts import axes, template
from fusescope.charts.escape import shown
from pages._ui.masks.views import Look
from pages._ui.widgets import elements

_VIEWS = {
    "attention": ("chart", ("map", "worst first", "rates")),
    "kernels": ("view", ("Times", "Roofline", "Accuracy")),
    "masks": ("view", ("Tiles", "Balance", "Storage", "Speed-up")),
    "models": ("view", ("Times", "Layer parts", "Memory")),
    "scaling": ("view", ("time", "efficiency", "communication", "memory", "collectives")),
    "fusion": ("part", ("Sweep", "Scheme", "Search")),
    "profiler": ("view", ("Overview", "Occupancy", "Roofline", "Memory", "Timeline")),
}
_PACKED = 10_000  # elements from which an array stays packed


def _parts(value):
    yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(child)


def _has_room(axis: dict) -> bool:
    """Whether plotly draws it in the margin that the figure gives it, without measuring its labels first."""
    hidden = axis.get("visible") is False or axis.get("showticklabels") is False
    return hidden or not axis.get("automargin")


@pytest.mark.parametrize("page", _VIEWS)
def test_no_chart_of_a_page_is_drawn_twice(page, recorded, draw):
    name, views = _VIEWS[page]
    seen = 0
    for view in views:
        at = calm(draw(page, **{name: view}))
        for chart in at.get("plotly_chart"):
            spec = json.loads(chart.proto.spec)
            layout = spec["layout"]
            assert layout["datarevision"] and not layout.get("template")
            for key, axis in layout.items():
                assert not (key.startswith(("xaxis", "yaxis")) and axis.get("autorange") == "reversed"), key
                assert not key.startswith("yaxis") or _has_room(axis), (layout["meta"], key)
                named = (
                    key.startswith("xaxis") and axis.get("automargin") and axis.get("title", {}).get("text")
                )
                if named and axis.get("side") != "top":
                    assert layout["margin"]["b"] >= template.BOTTOM, layout["meta"]
            for part in _parts(spec):
                if isinstance(part, dict) and "bdata" in part:
                    assert np.prod([int(n) for n in part["shape"].split(",")]) > _PACKED
            if chart.proto.selection_mode:
                assert {"clickmode", "hovermode", "dragmode"} <= set(layout)
            seen += 1
    assert seen


def test_a_figure_is_made_once_for_each_use():
    fig = template.figure("ours <a href='https://e.example'>x</a>")
    fig.add_heatmap(z=np.array([[1.0, np.nan], [np.inf, 2.0]]), x=np.arange(2))
    fig.update_layout(hovermode="x")
    first, clicked = shown(fig), shown(fig, clickmode="event", hovermode="closest")
    assert shown(fig) is first and shown(fig, clickmode="event", hovermode="closest") is clicked
    assert first.to_dict() is first.to_dict()
    assert "clickmode" not in first.to_dict()["layout"]
    layout = clicked.to_dict()["layout"]
    assert (layout["clickmode"], layout["hovermode"]) == ("event", "x"), "what the figure says itself counts"
    assert "<a" not in json.dumps(first.to_dict()) and "ours" in layout["title"]["text"]
    data = first.to_dict()["data"][0]
    assert data["z"] == [[1.0, None], [None, 2.0]] and data["x"] == [0, 1]


def test_large_arrays_stay_packed():
    fig = go.Figure(go.Heatmap(z=np.ones((101, 100), np.uint8)))
    assert shown(fig).to_dict()["data"][0]["z"]["dtype"] == "u1"


def test_rows_from_the_top_down_have_a_range():
    fig = template.figure("rows")
    axes.downwards(fig, ["a", "b", "a"], showgrid=False)
    assert fig.layout.yaxis.range == (1.5, -0.5) and fig.layout.yaxis.autorange is None


def test_what_a_click_needs_is_what_the_frontend_sets():
    """Other values would be replaced after the first drawing."""
    assert elements.CLICKED == {"clickmode": "event+select", "hovermode": "closest", "dragmode": "pan"}


def test_a_mask_file_that_changed_is_another_chart(tmp_path):
    """And any other setting that the curves of the Masks page show."""
    file = tmp_path / "m.npy"
    np.save(file, np.ones((4, 4), bool))
    look = Look((f"file:{file}",), 4, 4, "subtitle", "light")
    before = look.key
    assert look.key == before
    np.save(file, np.ones((4, 8), bool))
    others = [replace(look, seq_q=5), replace(look, seq_k=5), replace(look, theme="dark")]
    keys = {before, look.key, *(other.key for other in others), replace(look, subtitle="x").key}
    assert len(keys) == 6


def test_a_model_run_that_grew_has_its_new_cell(draw, profiles):
    def records(seq):
        case = models.validate("bert-base", {"batch": 16, "seq": seq})
        timed = [synthetic.ok(impl, ms, 4.0, case) for impl, ms in (("sdpa", 2.0), ("fused", 1.0))]
        return [replace(r, op="model:bert-base") for r in timed]

    spec = {"op": "model:bert-base", "impls": ["sdpa", "fused"], "cases": [], "dtype": "float32"}
    run = synthetic.run("20261120-104200-model-abc123", kind="model", spec=synthetic.SPEC | spec)
    path = folders.write(profiles, run, records(512))
    at = draw("models", show="all models")
    assert len(at.selectbox(key="models/cell").options) == 1
    lines = (json.dumps(r.to_json()) + "\n" for r in records(1024))
    with (path / "results.jsonl").open("a") as file:
        file.writelines(lines)
    assert len(calm(at.run()).selectbox(key="models/cell").options) == 2
