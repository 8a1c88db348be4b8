"""Layouts as text, what a model takes of them, and predictions over them. No torch."""

from dataclasses import replace

import pytest

from fusescope import models
from fusescope.analysis.scaling import links, predict
from fusescope.models.describe import layouts, predicted
from fusescope.models.describe.layouts import Layout

DIVIDED = [n for n in models.names() if hasattr(models.family(n), "PARALLEL")]


@pytest.mark.parametrize("text", ("single", "tp2", "pp4", "tp2.pp2.dp2", "dp1024"))
def test_a_layout_is_its_text(text):
    assert str(layouts.parse(text)) == text
    impl = layouts.implementation("sdpa", layouts.parse(text))
    assert layouts.named(impl) == ("sdpa", layouts.parse(text))


@pytest.mark.parametrize("text", ("", "tp", "tp0", "tp2.tp2", "x2", "tp2,pp2", "tp-2", "dp2048", "tp64.pp64"))
def test_bad_layouts(text):
    with pytest.raises(ValueError, match="a layout"):
        layouts.parse(text)
    with pytest.raises(ValueError, match=r"a layout|an implementation"):
        layouts.named(f"sdpa-{text}")


@pytest.mark.parametrize(
    "name, case, layout, pieces, words",
    [
        ("gpt2", {}, "tp5", 1, "12 heads, which the tensor parallel degree 5"),
        ("llama-small", {}, "tp3", 1, "4 KV heads, which the tensor parallel degree 3"),
        ("gpt2", {}, "pp5", 1, "12 layers, which 5 pipeline stages"),
        ("gpt2", {"batch": 3}, "dp2", 1, "batch 3 is not divided"),
        ("gpt2", {"batch": 4}, "pp2", 3, "3 micro-batches do not divide the 4 sequences"),
        ("gpt2", {"phase": "decode"}, "tp2", 1, "phase is prefill"),
        ("bert-base", {"batch": 2, "lengths": "100+20"}, "tp2", 1, "lengths is fixed"),
        ("t5-small", {}, "tp2", 1, "has no way to be divided"),
    ],
)
def test_what_a_model_does_not_take(name, case, layout, pieces, words):
    with pytest.raises(ValueError, match=words):
        layouts.check(name, models.validate(name, case), layouts.parse(layout), pieces)


@pytest.mark.parametrize(
    "name, layout, words",
    [
        ("gpt2", "tp2", r"BERT's structure; gpt2 has another \(decoder\): use sdpa or fusescope"),
        ("llama-small", "single", "BERT's structure"),
        ("bert-base", "tp2.pp2", "no pipeline stages: tp2.pp2 needs sdpa or fusescope"),
        ("bert-base", "tp5", "12 heads, which the tensor parallel degree 5"),
    ],
)
def test_what_the_fused_encoder_does_not_take(name, layout, words):
    with pytest.raises(ValueError, match=words):
        layouts.check(name, models.validate(name, {}), layouts.parse(layout), 1, "fused")


def test_stages_are_left_to_the_attentions_that_have_them():
    wanted = [layouts.parse(text) for text in ("tp2", "pp2", "tp2.dp2")]
    both = layouts.crossed(["sdpa", "fused"], wanted)
    assert both == ["sdpa", "sdpa-tp2", "sdpa-pp2", "sdpa-tp2.dp2", "fused", "fused-tp2", "fused-tp2.dp2"]
    assert layouts.crossed(["fused"], wanted)[2] == "fused-pp2", "refused by name, not left out"


@pytest.mark.parametrize("name", DIVIDED)
def test_every_weight_is_held_somewhere(name):
    case = models.validate(name, {})
    held = layouts.weights(name, case)
    whole = models.anatomy(name, case)
    skipped = sum(n.count for n in whole if n.parent == name and n.label in ("head", "pooler"))
    assert sum(held.values()) + skipped == whole[0].count
    assert held["split"] > 0.9 * sum(held[k] for k in ("split", "whole"))


LINKS = links.given(10e-6, 100e9)


def basis(name="gpt2", batch=64, links_given=LINKS, overhead=0.0, host_ms=None):
    """Times that shrink exactly in proportion to a rank's share, besides an overhead in ms. host_ms: of
    launching."""
    case = models.validate(name, {"batch": batch, "seq": 128})
    points = [
        {"attention": "sdpa", "tp": tp, "batch": b, "ms": overhead + 3.0 * b / tp, "host_ms": host_ms}
        for tp in (1, 2, 4)
        for b in (1, 4, 16, 64)
    ]
    environment = {"probes": [{"case": case, "points": points}]}
    return predicted.basis(name, case, "float16", "sdpa", environment, links_given)


def test_predictions_by_hand():
    base, free = basis(), basis(links_given=links.given(0.0, 1e30))
    single = base.compute.ms(1, 64)
    assert base.at(Layout(), 1).ms == pytest.approx(single)
    assert base.at(Layout(dp=8), 1).ms == pytest.approx(single / 8)
    assert free.at(Layout(tp=4), 1).ms == pytest.approx(single / 4)
    # 4 stages, 8 micro-batches: 11 steps of an eighth of the batch on a quarter of the layers
    pipeline = free.at(Layout(pp=4), 8)
    assert pipeline.ms == pytest.approx(11 * single / 8 / 4)
    assert pipeline.bubble_ms / pipeline.ms == pytest.approx(3 / 11)
    # 12 layers, two all-reduces each, of 64 × 128 × 768 elements of two bytes
    reduce = 2 * 10e-6 + 2 / 2 * (64 * 128 * 768 * 2) / 100e9
    assert base.at(Layout(tp=2), 1).ms == pytest.approx(single / 2 + 24 * reduce * 1e3)


def test_a_host_bound_layout_is_a_lower_bound():
    """Launching takes 40 ms: most of a batch of 16 (48 ms) and of half of 32, little of 64 (192 ms)."""
    base = basis(host_ms=40.0)
    assert not base.at(Layout(tp=2), 1).host_bound and base.at(Layout(pp=2), 4).host_bound
    assert basis(batch=16, host_ms=40.0).at(Layout(tp=2), 1).host_bound
    assert base.at(Layout(dp=4), 1).host_bound and not basis(host_ms=10.0).at(Layout(dp=4), 1).host_bound
    assert not base.at(Layout(), 1).host_bound
    assert not basis().at(Layout(pp=2), 4).host_bound, "not known"
    row = predicted.Compared("sdpa-tp2", "strong", {}, 2.0, 1.0, True)
    assert row.to_json()["error"] is None and replace(row, host_bound=False).error == -0.5


def test_the_best_layouts_fit_and_are_sorted():
    base = basis("llama-small")
    for ranks in (2, 8, 64):
        best = base.best(ranks, (1, 4, 16))
        assert best and all(p.ranks == ranks for p in best)
        assert [p.ms for p in best] == sorted(p.ms for p in best)
        room = min(p.memory_bytes for p in best)
        assert all(p.memory_bytes <= room for p in base.best(ranks, (1, 4, 16), room))
    assert base.best(1024, (1,), 1) == []
    assert base.scheme("tp", 8, 4) is None and base.scheme("tp", 4, 4).tp == 4


def test_what_would_help_names_what_costs():
    slow_link = basis(links_given=links.given(0.0, 1e9))
    assert slow_link.helps(slow_link.at(Layout(tp=4), 1))[0].what == "unlimited bandwidth"
    far_link = basis(links_given=links.given(1e-3, 1e12))
    assert "latency" in far_link.helps(far_link.at(Layout(tp=4), 1))[0].what
    bubbles = basis()
    assert "bubbles" in bubbles.helps(bubbles.at(Layout(pp=4), 1))[0].what
    fixed = basis(overhead=40.0)
    assert "in proportion" in fixed.helps(fixed.at(Layout(tp=4), 1))[0].what
    at = slow_link.at(Layout(tp=4), 1)
    assert all(0 <= h.ms <= at.ms for h in slow_link.helps(at))


def test_a_prediction_without_its_measurements_is_refused():
    case = models.validate("gpt2", {})
    with pytest.raises(ValueError, match="timed a rank's share"):
        predicted.basis("gpt2", case, "float16", "sdpa", {}, LINKS)
    points = [{"attention": "sdpa", "tp": 1, "batch": 1, "ms": 1.0}]
    with pytest.raises(ValueError, match="latency and bandwidth"):
        predicted.basis("gpt2", case, "float16", "sdpa", {"probes": [{"case": case, "points": points}]})
    for probes in ([3], [{"case": case}], [{"case": case, "points": [{"attention": "sdpa"}]}]):
        with pytest.raises(ValueError, match="not readable"):
            predicted.basis("gpt2", case, "float16", "sdpa", {"probes": probes}, LINKS)


def test_memory_falls_with_what_is_divided():
    work = layouts.work("gpt2", models.validate("gpt2", {"batch": 8}), "float16")
    one = predict.memory(work, 1, 1, 8, 8)
    assert predict.memory(work, 2, 1, 8, 8) < one and predict.memory(work, 1, 2, 8, 4) < one
    assert one > work.size * (work.split + work.whole + work.first + work.last)
