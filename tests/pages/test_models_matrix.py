"""All models over shapes: one cell a case, named by what is unusual, and the comparison behind it."""

import dataclasses
import json

import synthetic
from drawn_page import calm, query, said

from fusescope import models
from fusescope.charts.models import matrix
from fusescope.core.records import Speedup


def box(at, label):
    return next(w for w in at.selectbox if w.label == label)


def record(impl, ms, model="bert-base", **case):
    whole = models.validate(model, {"batch": 16, "seq": 512} | case)
    return dataclasses.replace(synthetic.ok(impl, ms, 4.0, whole), op=f"model:{model}")


def test_a_cell_is_the_fastest_mode_or_the_chosen_one_against_sdpa():
    rows = [record("eager", 4.0), record("sdpa", 2.0), record("fused", 1.0)]
    [best], [eager] = (matrix.cells([("run", "BERT base", rows)], mode) for mode in (None, "eager"))
    assert (best.record.impl, best.ratio) == ("fused", 2.0) and best.column == "16 × 512"
    assert "▼ 2.00×" in json.dumps(matrix.figure([eager]).to_dict(), default=str, ensure_ascii=False)
    assert matrix.cells([("run", "BERT base", rows)], "flex") == []
    assert "2.00× sdpa over 1 cell" in matrix.summary([best])


def test_what_is_unusual_about_a_case_is_in_the_name_of_its_row():
    rows = [
        [record("sdpa", 1.0, **case)]
        for case in ({}, {"lengths": "uniform"}, {"mask": "sliding_window:left=8"})
    ]
    rows.append([record("sdpa", 1.0, "gpt2", phase="decode")])
    cells = matrix.cells(("run", "M", some) for some in rows)
    assert {c.row for c in cells} == {"M", "M, unequal lengths", "M, sliding window:left=8", "M, decode"}


def test_a_decode_step_which_has_no_sdpa_is_over_eager():
    """Every cell of decoding said n/a."""
    step = [record(i, ms, "gpt2", phase="decode") for i, ms in (("eager", 3.0), ("fused", 1.0))]
    [cell] = matrix.cells([("run", "GPT-2", step)])
    assert (cell.over, cell.ratio) == ("eager", 3.0)
    assert "▲ 3.00× eager" in json.dumps(matrix.figure([cell]).to_dict(), default=str, ensure_ascii=False)
    both = [*matrix.cells([("run", "B", [record("sdpa", 2.0), record("fused", 1.0)])]), cell]
    said_so = "2.00× sdpa over 1 cell, faster in 1; 3.00× eager over 1 cell, faster in 1."
    assert said_so in matrix.summary(both)


def test_without_a_peer_there_is_no_ratio_and_undecided_cells_have_no_colour():
    [alone] = matrix.cells([("run", "M", [record("fused", 1.0)])])
    assert alone.ratio is None and "has a time of sdpa" in matrix.summary([alone])
    near = [
        record("sdpa", 2.0),
        dataclasses.replace(record("fused", 1.99), speedup=Speedup("graph", 1, 0.9, 1.1)),
    ]
    assert {z for line in matrix.figure(matrix.cells([("run", "M", near)])).data[0].z for z in line} == {0.0}
    assert not matrix.figure([]).data


def test_the_page_shows_all_models_of_a_device_and_opens_a_cell(draw, recorded):
    at = draw("models", show="all models", on="NVIDIA H200")
    assert box(at, "device").value == "NVIDIA H200" and len(at.get("plotly_chart")) == 2
    assert "Geometric mean" in said(at.caption) and query(at)["show"] == "all models"
    padded = next(o for o in box(at, "cell").options if o.startswith("BERT base, unequal lengths · 16 × 512"))
    box(at, "cell").select(padded)
    assert "fused is correct and fastest: 2.0" in said(calm(at.run()).markdown)
    assert "cell" in query(at)


def test_one_mode_everywhere_and_a_cpu(draw, recorded):
    at = draw("models", show="all models", on="Intel(R) Xeon(R) Processor", mode="sdpa")
    assert box(at, "execution mode").value == "sdpa" and len(at.get("plotly_chart")) == 2


def test_without_a_run_the_page_says_so(draw):
    assert "No model was measured yet" in said(draw("models", show="all models").markdown)
