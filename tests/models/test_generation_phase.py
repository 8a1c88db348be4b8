"""Phase generate: every step's logits equal float64, the report's figures, and what is refused."""

from __future__ import annotations

import pytest

from fusescope import models
from fusescope.core.records import Record, Time, Times
from fusescope.models.describe import costs
from tests.models.tiny_models import built, case

TIMES = Times(1.0, Time(1.0, 0.9, 1.1, 9, True))
NEW = {"phase": "generate", "new": 4}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama-small"])
def test_logits_of_every_step_equal_float64(name):
    from fusescope.models.run import build, modes, tolerance

    whole, model = case(name, **NEW), built(name)
    inputs = build.inputs(model, whole)
    exact = tolerance.reference(model, inputs)
    assert exact.shape == (2, 4, model.config.vocab)
    for mode in ("eager", "sdpa", "fusescope", "fused"):
        run = modes.make(mode, model, inputs)
        for _ in range(2):  # a cache that another call left behind
            assert float((run() - exact).norm() / exact.norm()) < tolerance.allowed_norm(2, "float32"), mode


@pytest.mark.slow
@pytest.mark.parametrize("name, lengths", [("gpt2", "9+17"), ("qwen3-0.6b", "fixed")])
def test_the_fused_decoder_fills_the_cache_and_says_its_parts_and_outputs(name, lengths):
    from fusescope.models.accuracy import job
    from fusescope.models.inspect import parts
    from fusescope.models.run import build, modes

    model, whole = built(name), case(name, phase="prefill", lengths=lengths)
    theirs, ours = build.inputs(model, whole), build.inputs(model, whole)
    modes.make("sdpa", model, theirs)()
    modes.make("fused", model, ours)()
    for side in ("keys", "values"):
        for a, b in zip(getattr(theirs["cache"], side), getattr(ours["cache"], side)):
            for n, x, y in zip(theirs["lengths"], a, b):
                assert float((x[:, :n] - y[:, :n]).abs().max()) < 1e-5
    rows = {r["name"]: r for r in job.compare(model, ours, whole, "fused", "float32")["rows"]}
    said = {text.replace("{i}", str(i)) for i in range(2) for text in model.family.MODULES.values()}
    assert set(rows) == said - {"lm_head"} | {job.OUTPUT} and all(r["accepted"] for r in rows.values())
    generated = build.inputs(model, case(name, **NEW))
    found = parts.measure("fused", model, generated, None)
    assert all(found[part]["ms"] > 0 for part in ("embedding", "norm", "qkv", "attention", "ffn", "head"))


def test_a_generation_by_replays_follows_its_buffers(monkeypatch):
    """The prompt and a token as they are captured on a GPU: what they read and write stays where it was."""
    import torch

    from fusescope.models.run import build, modes
    from fusescope.models.run.decoder import mode

    monkeypatch.setattr(mode.capture, "captured", lambda call, device, before: before() or call)
    model = built("llama-small")
    inputs = build.inputs(model, case("llama-small", **NEW))
    expected, known = modes.make("fused", model, inputs)(), []
    with torch.no_grad():
        run = mode.FusedDecoder(model, inputs).replayed()
        assert torch.equal(run(), expected)
        assert torch.equal(run.marked(lambda: known.append(1)), expected) and run.graph
        inputs["forced"].copy_(inputs["forced"].roll(1, 1))
        assert len(known) == 4 and not torch.equal(run(), expected)


def test_a_step_that_sees_another_token_is_seen():
    """The check of a generation catches a cache that is one token short."""
    from fusescope.models.run import build, tolerance

    model = built("llama-small")
    inputs = build.inputs(model, case("llama-small", **NEW))
    exact = tolerance.reference(model, inputs)
    wrong = dict(inputs) | {"forced": inputs["forced"].roll(1, 1)}
    out = build.call(model.view("sdpa"), wrong)
    assert float((out - exact).norm() / exact.norm()) > tolerance.allowed_norm(2, "float32")


def test_cost_is_the_prompt_and_a_decoded_token_for_each_further_one():
    whole = case("gpt2", **NEW)
    found = costs.cost("gpt2", whole, "float16")
    prompt = costs.cost("gpt2", case("gpt2", phase="prefill"), "float16")
    steps = [costs.cost("gpt2", case("gpt2", phase="decode", seq=n), "float16") for n in (17, 18, 19)]
    head = 2.0 * 2 * 64 * 50257
    expected = prompt.flop_effective + head + sum(s.flop_effective for s in steps)
    assert found.flop_effective == pytest.approx(expected)
    assert found.bytes_read > prompt.bytes_read + sum(s.bytes_read for s in steps)
    assert costs.cache_bytes("gpt2", whole, "float16") == 2 * 2 * 2 * (17 + 4) * 64 * 2
    assert costs.cache_bytes("bert-base", case("bert-base"), "float16") is None


@pytest.mark.parametrize(
    "more, says",
    [
        ({"lengths": "9+17"}, "whole prompts"),
        ({"new": 1}, "new must be at least 2|new must"),
        ({"batch": 64, "new": 16384, "seq": 17}, "numbers to be checked"),
    ],
)
def test_what_is_not_generated_is_refused(more, says):
    with pytest.raises(ValueError, match=says):
        case("gpt2", **NEW | more)


def test_other_phases_have_no_new_tokens_and_jobs_that_look_inside_refuse_generate():
    from fusescope.jobs.kinds import accuracy

    assert "new" not in case("gpt2", phase="decode")
    assert models.config("gpt2", case("gpt2", seq=1020, **NEW)).positions == 1024
    spec = {"model": "gpt2", "case": case("gpt2", **NEW), "entries": [["eager", "float32"]]}
    with pytest.raises(ValueError, match="phase is prefill or decode, not generate"):
        accuracy.validate(spec)


def test_the_report_has_first_token_tokens_memory_and_the_share_of_the_roof():
    from fusescope.models.inspect import generation
    from fusescope.models.run import build, modes

    model, whole = built("gpt2"), case("gpt2", **NEW)
    inputs = build.inputs(model, whole)
    memory = {"weights_bytes": model.bytes, "call_bytes": None}
    for mode in ("fused", "sdpa"):
        run = modes.make(mode, model, inputs)
        found = generation.report(run, mode, model, inputs, {"p50": 9.0, "p99": 9.0}, memory, 10.0)
        assert found["first_ms"] > 0 and 0 < found["token_ms"]["p50"] <= found["token_ms"]["p99"]
    assert found["tokens_per_s"] == pytest.approx(2e3 / found["token_ms"]["p50"])
    assert found["memory"]["cache_bytes"] == costs.cache_bytes("gpt2", whole, "float32")
    decode = case("gpt2", phase="decode")
    found = generation.report(
        None,
        "sdpa",
        model,
        {"case": decode},
        {"p50": 2.0, "p99": 3.0},
        memory,
        costs.cost("gpt2", decode, "float32").bytes / 1e6,
    )
    assert found["token_ms"] == {"p50": 2.0, "p99": 3.0} and found["first_ms"] is None
    assert found["roof_share"] == pytest.approx(0.5)
    assert generation.report(None, "sdpa", model, {"case": case("bert-base")}, {}, memory, 1.0) is None


def test_the_curve_has_a_point_for_each_batch():
    chart = pytest.importorskip("fusescope.charts.models.generation", reason="charts need plotly")

    def record(batch, ms):
        how = {
            "first_ms": 1.0,
            "token_ms": {"p50": ms, "p99": 2 * ms},
            "tokens_per_s": batch / ms * 1e3,
            "memory": {"weights_bytes": 1 << 20, "cache_bytes": 1 << 10, "activations_bytes": None},
            "roof_share": None,
        }
        asked = case("gpt2", batch=batch, **NEW)
        return Record(
            "model:gpt2", "sdpa", asked, "float32", "cpu", "ok", time_ms=TIMES, extra={"generation": how}
        )

    rows = [record(4, 2.0), record(1, 1.0)]
    line = chart.curve(rows).data[0]
    assert list(line.x) == [1.0, 2.0] and list(line.y) == [1000.0, 2000.0] and list(line.text) == ["1", "4"]
    assert list(chart.readable(rows)["tokens/s"]) == [2000.0, 1000.0]
