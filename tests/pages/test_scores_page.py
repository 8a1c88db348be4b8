"""The score section of the Masks page: empty, with a report, wrong inputs, and the job it submits."""

import base64
import gzip
import json

import folders
import pytest
import synthetic
from drawn_page import query, said

from fusescope import models
from fusescope.analysis import scores as figures_of
from fusescope.charts.masks import scores


def drawn(at):
    return json.dumps([json.loads(c.proto.spec) for c in at.get("plotly_chart")])


def a_report(profiles, padded=False, checkpoint="/weights"):
    case = models.validate(
        "bert-base", {"seq": 8, "layers": 2, "batch": 2, "lengths": "8+4" if padded else "fixed"}
    )
    bars = [0] * (len(figures_of.BINS) - 1)
    skip = [
        {"tiles": 4, "skipped": 4 - min(i, 4), "lost": 0, "error": 10.0**-i if i < 4 else 0.0}
        for i in range(len(figures_of.THRESHOLDS))
    ]
    head = {
        "live": 64,
        "zeros": 3,
        "below": [60, 32, 16, 8, 4, 2],
        "histogram": [*bars[:-1], 61],
        "entropy": 2.5,
        "most_bits": 3.0,
        "skip": skip,
        "heat": base64.b64encode(bytes(range(190, 254))).decode(),
    }
    report = {
        "schema": 1,
        "model": "bert-base",
        "case": case,
        "dtype": "float16",
        "input": "random",
        "tile": 16,
        "lengths": models.lengths(case),
        "thresholds": figures_of.THRESHOLDS,
        "bins": figures_of.BINS,
        "padding": figures_of.padding(models.lengths(case), 8),
        "layers": [
            {"name": f"encoder.layer.{i}.attention.self", "side": 1, "shape": [8, 8], "heads": [head] * 12}
            for i in range(2)
        ],
    }
    run = synthetic.run(
        "20261120-120000-scores-0000aa",
        kind="scores",
        spec={k: report[k] for k in ("model", "case", "dtype", "input", "tile")} | {"checkpoint": checkpoint},
    )
    path = folders.write(profiles, run, [], samples=False)
    (path / "artifacts" / "scores.json.gz").write_bytes(gzip.compress(json.dumps(report).encode()))
    return run


def test_without_a_report_it_says_what_it_would_show(draw):
    at = draw("masks", view="Scores", seq="64")
    assert "Not analysed yet" in said(at.markdown) and not at.error
    assert not next(b for b in at.button if b.label == "Analyse attention scores").disabled


def test_a_report_is_drawn_with_every_figure(draw, profiles):
    a_report(profiles, padded=True)
    at = draw(
        "masks",
        view="Scores",
        seq="64",
        s_at="1e-2",
        s_cell="entropy (bits)",
        s_layer="encoder.layer.1.attention.self",
        s_head="3",
    )
    text = drawn(at)
    assert all(
        word in text
        for word in (
            "Entropy (bits)",
            "Skippable tiles",
            "Probabilities of head 3",
            "Distribution in head 3",
        )
    )
    shown = {m.label: m.value for m in at.metric}
    assert (
        shown["below the threshold"] == "50.0 %"
        and shown["exactly zero"] == "4.69 %"
        and shown["tiles skippable"] == "75.0 %"
    )
    assert "25.0 % of the tokens" in said(at.caption) and "37.5 % of the scores" in said(at.caption)
    assert {k: query(at)[k] for k in ("s_at", "s_head")} == {"s_at": "1e-2", "s_head": "3"} and not at.error


def test_random_weights_allow_no_conclusion(draw, profiles):
    a_report(profiles, checkpoint=None)
    at = draw("masks", view="Scores", seq="64")
    assert "Random weights" in said(at.warning) and "checkpoint folder" in said(at.warning)
    assert not {"tiles skippable", "effective keys", "below the threshold"} & {m.label for m in at.metric}
    assert "random weights" in drawn(at)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given, says",
    [
        ({"s_input": "tokens", "s_file": "/nowhere.txt"}, "cannot be read"),
        ({"s_input": "tokens"}, "Give the path"),
        ({"s_input": "text"}, "Give a text"),
        ({"s_lengths": "5+x"}, "5+x"),
        ({"s_lengths": "5+900"}, "900"),
        ({"s_input": "text", "s_text": "x", "s_tokenizer": "/nowhere"}, "/nowhere"),
        ({"s_model": "gpt2", "s_mask": "above", "mask": "full"}, "left to right"),
        ({"s_checkpoint": "/nowhere"}, "nowhere"),
    ],
)
def test_an_input_that_cannot_be_is_one_sentence(draw, given, says):
    at = draw("masks", view="Scores", seq="64", **given)
    assert (
        says in said(at.error)
        and next(b for b in at.button if b.label == "Analyse attention scores").disabled
    )


def test_the_button_submits_what_is_chosen(draw, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "fusescope.jobs.submit.submit", lambda kind, spec, title="": sent.append((kind, spec)) or "x"
    )
    at = draw(
        "masks",
        view="Scores",
        mask="causal",
        seq="64",
        s_mask="above",
        s_model="bert-small",
        s_seq="32",
        s_tile="32",
        s_dtype="bfloat16",
        s_lengths="32+9+1",
    )
    next(b for b in at.button if b.label == "Analyse attention scores").click()
    at.run()
    kind, spec = sent[0]
    assert spec["case"]["batch"] == 3 and spec["case"]["lengths"] == "32+9+1"
    assert kind == "scores" and (spec["case"]["mask"], spec["case"]["seq"], spec["tile"], spec["dtype"]) == (
        "causal",
        32,
        32,
        "bfloat16",
    )


def test_a_picture_of_nothing_but_zeros_is_drawn():
    fig = scores.picture(base64.b64encode(bytes(4)).decode(), [2, 2], 1, "t")
    assert fig.data[0].z.shape == (2, 2)
