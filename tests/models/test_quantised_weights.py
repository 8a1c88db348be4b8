"""Modes with quantised weights: right against the model that has them, and how far that is from the model's
own is said."""

from __future__ import annotations

import pytest

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.models.describe import costs
from tests.models.tiny_models import built, case

KINDS = ("int8", "fp8")


@pytest.mark.parametrize("kind, error", [("int8", 1 / 254), ("fp8", 1 / 16)])
def test_a_row_is_off_by_half_a_step_of_its_own_scale(kind, error):
    import torch

    from fusescope.models.run.decoder.quantised import quantise

    weight = (
        torch.randn(5, 64, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 6, 5)[:, None]
    )
    weight[2] = 0
    found = quantise(weight, kind)
    assert found.values.element_size() == 1 and found.bytes == 5 * 64 + 4 * 5
    off, largest = (found.dequantised(torch.float32) - weight).abs(), weight.abs().amax(1, keepdim=True)
    size = largest if kind == "int8" else torch.maximum(weight.abs(), largest * 2**-6 / 448)
    assert bool((off <= size * error * 1.0001).all()) and off[2].max() == 0
    assert float((off / largest.clamp(min=1e-30)).max()) > error / 3, "and no finer than its format"


@pytest.mark.parametrize("phase", ["decode", "prefill", "generate"])
def test_what_the_hardware_needs_goes_by_the_weights_that_the_mode_reads(phase):
    """Else 8-bit decoding on time, 3.7 ms of Llama 3 8B where 16-bit weights take 4.9, is an error."""
    from fusescope.measure.checking import alarm
    from fusescope.measure.model_subject import ModelSubject

    subject, given = ModelSubject("llama3-8b"), {"batch": 1, "seq": 512, "phase": phase}
    given = models.validate("llama3-8b", given | ({"new": 4} if phase == "generate" else {}))
    cost = {mode: subject.cost(given, "float16", mode) for mode in ("eager", "fused", "fused-fp8")}
    assert cost["eager"] == cost["fused"] == subject.cost(given, "float16")
    config, steps = models.config("llama3-8b", given), 4 if phase == "generate" else 1
    columns = 2 * (config.inner + config.kv_inner) + 3 * config.ffn  # of a layer's products, by hidden
    outputs = config.qkv_inner + 2 * config.hidden + 2 * config.ffn
    fewer = config.layers * (columns * config.hidden - 4 * outputs)
    assert cost["fused"].bytes - cost["fused-fp8"].bytes == pytest.approx(steps * fewer, rel=1e-9)
    if phase == "decode":
        rates = {
            "copy_gbps": 3050.0,
            "vector_tflops": {"float16": 120.0},
            "matrix_tflops": {"float16": 700.0},
        }
        needed = {mode: alarm.bound_ms(c, "float16", False, rates, None) for mode, c in cost.items()}
        assert alarm.impossible(3.686, "graph", needed["fused-fp8"]) is None
        assert "needs 4.9" in alarm.impossible(3.686, "graph", needed["fused"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama-small"])
def test_a_quantised_mode_is_checked_against_the_model_with_its_weights(name):
    from fusescope.measure.model_subject import ModelCase, ModelSubject

    subject, whole = ModelSubject(models.op(name).removeprefix("model:")), case(name, phase="decode")
    checked = ModelCase(subject, whole, "float32", "cpu", 0)
    errors = []
    for kind in KINDS:
        run = subject.make(f"fused-{kind}", checked.inputs)
        outcome = checked.verify(run, run())
        assert outcome.reason is None and checked.comparison()(run, run()) is None
        errors.append(run.figures["relative_l2"])
        assert 0 < run.figures["kl_mean"] <= run.figures["kl_most"] < 0.1
        assert 0 <= run.figures["same_token"] <= 1
        run.quantised = None  # against the model's own weights it is wrong
        assert checked.verify(run, run()).reason is not None
    assert 1e-4 < errors[0] < errors[1] < 0.2, "fp8 keeps three bits of a number, int8 seven of the largest"


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"phase": "decode", "lengths": "9+17"}, {"phase": "generate", "new": 4}])
@pytest.mark.parametrize("name", ["gpt2", "llama-small"])
def test_an_fp8_cache_is_checked_against_a_cache_rounded_alike(name, more):
    import torch

    from fusescope.measure.model_subject import ModelCase, ModelSubject
    from fusescope.models.run.decoder import fp8_cache
    from fusescope.ops import fp8

    subject, whole = ModelSubject(models.op(name).removeprefix("model:")), case(name, **more)
    for dtype in ("float32", "float16"):
        checked = ModelCase(subject, whole, dtype, "cpu", 0)
        run = subject.make("fused-fp8-cache", checked.inputs)
        assert checked.verify(run, run()).reason is None and checked.comparison()(run, run()) is None
        assert 1e-3 < run.figures["relative_l2"] < 0.1 and 0 < run.figures["kl_mean"] < 0.01
        checked.renew()
        assert checked.verify(run).reason is None
        run.quantised = None  # against the model's own cache it is wrong
        assert checked.verify(run, run()).reason is not None
    to_fp8 = fp8.to_fp8

    def truncated(heads, scale):
        return to_fp8(heads, scale).view(torch.uint8).bitwise_and(0xFE).view(torch.float8_e4m3fn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fp8_cache.Fp8Cache, "fill", _filled_by(truncated))
        coarse = subject.make("fused-fp8-cache", checked.inputs)
        out = coarse()
    assert checked.verify(coarse, out).reason is not None, "numbers of two bits are not taken for e4m3"


def _filled_by(rounded):
    """Fp8Cache.fill with another rounding."""
    from fusescope.ops import fp8

    def fill(self, layer, keys, values):
        for side, rows, scale in zip((self.keys, self.values), (keys, values), self.scales[layer].values()):
            scale.copy_(fp8.roomy(fp8.largest(rows)))
            side[layer][:, :, : rows.shape[2]] = rounded(rows, scale)

    return fill


def test_an_fp8_cache_is_for_decoding_and_its_bytes_count():
    from fusescope.measure.model_subject import ModelSubject

    subject = ModelSubject("llama-small")
    given = models.validate("llama-small", case("llama-small", phase="prefill"))
    with pytest.raises(Unsupported, match="phases decode and generate: a prefill reads no cache"):
        subject.make("fused-fp8-cache", subject.inputs(given, "float32", "cpu", 0))
    assert "not those of bert" in models.mode("bert-base", "fused-fp8-cache").reason
    given = models.validate("llama-small", case("llama-small", phase="decode"))
    wide, narrow = (subject.cost(given, "float16", mode).bytes_read for mode in ("fused", "fused-fp8-cache"))
    held = [costs.cache_bytes("llama-small", given, "float16", kind) for kind in (None, "fp8-cache")]
    scales = 8 * subject.model.config.layers * subject.model.config.kv_heads
    seen = given["batch"] * given["seq"] / (given["batch"] * (given["seq"] + 1))
    assert held[1] - scales == held[0] / 2
    assert wide - narrow == pytest.approx(seen * held[0] / 2 - scales)


def test_quantised_weights_of_other_values_fail_the_check():
    from fusescope.measure.model_subject import ModelCase, ModelSubject
    from fusescope.models.run.decoder import quantised

    subject, whole = ModelSubject("llama-small"), case("llama-small", phase="prefill", lengths="9+17")
    checked = ModelCase(subject, whole, "float16", "cpu", 0)
    run = subject.make("fused-int8", checked.inputs)
    assert checked.verify(run, run()).reason is None and run.figures["kl_mean"] is None
    exact = quantised.quantise

    def coarse(weight, kind):
        found = exact(weight, kind)
        return quantised.Quantised(found.values // 2 * 2, found.scales)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantised, "quantise", coarse)
        wrong = subject.make("fused-int8", checked.inputs)
    assert checked.verify(wrong, wrong()).reason


def test_figures_of_equal_and_of_shifted_logits():
    import torch

    from fusescope.models.run.decoder.quantised import figures

    exact = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 3.0, 0.0]]], dtype=torch.float64)
    assert figures(exact.float(), exact, True) == {
        "relative_l2": 0.0,
        "kl_mean": 0.0,
        "kl_most": 0.0,
        "same_token": 1.0,
    }
    other = exact.flip(-1)
    p, q = (t.softmax(-1) for t in (exact, other))
    kl = (p * (p / q).log()).sum(-1)[0]
    found = figures(other.float(), exact, True)
    assert found["kl_mean"] == pytest.approx(float(kl.mean())) and found["same_token"] == 0.5
    assert found["kl_most"] == pytest.approx(float(kl.max()))
    assert figures(other, exact, False)["kl_mean"] is None


def test_few_tokens_read_8_bits_and_more_are_dequantised(monkeypatch):
    import torch

    from fusescope.models.run.decoder import quantised
    from fusescope.ops.layer import linear_weight_only as operator

    g = torch.Generator().manual_seed(2)
    held = quantised.quantise(torch.randn(32, 24, generator=g).t(), "fp8")
    assert held.values.is_contiguous(), "rows of another order would be copied in each call"
    read, dequantise = [], operator.dequantised

    def seen(*given):
        read.append("16 bits")
        return dequantise(*given)

    monkeypatch.setattr(operator, "dequantised", seen)
    exact = held.values.double() * held.scales.double()
    for rows in (operator.FEW_ROWS, operator.FEW_ROWS + 1):
        x, added = (torch.randn(rows, 1, n, generator=g, dtype=torch.float16) for n in (32, 24))
        out = held.product(x, added[0, 0], "gelu", added)
        right = torch.nn.functional.gelu(x.double() @ exact.t() + added[0, 0].double()) + added.double()
        torch.testing.assert_close(out.double(), right, rtol=4e-3, atol=2e-2)
        assert len(read) == (rows > operator.FEW_ROWS)


def test_bytes_names_and_who_has_the_modes():
    from fusescope.ops.layer.linear_weight_only import FEW_ROWS

    whole = case("gpt2")
    full, fewer = (costs.weight_bytes("gpt2", whole, "float16", kind) for kind in (None, "int8"))
    assert full == 2 * models.total("gpt2", whole)
    matrices = 2 * (64 * 192 + 64 * 64 + 2 * 64 * 256)
    assert full - fewer == matrices - 4 * 2 * (192 + 64 + 256 + 64)
    assert models.mode("mistral-7b", "fused-fp8").reason is None
    idea = models.mode("gpt2", "fused-int8").idea
    assert f"up to {FEW_ROWS} tokens at a time" in idea and "not the speed" in idea
    for name in ("bert-base", "t5-small"):
        assert f"not those of {name}" in models.mode(name, "fused-int8").reason


def test_accuracy_by_module_is_against_the_model_s_own_weights():
    from fusescope.models.accuracy import job
    from fusescope.models.run import build

    model, whole = built("gpt2"), case("gpt2", phase="decode")
    rows = job.compare(model, build.inputs(model, whole), whole, "fused-int8", "float32")["rows"]
    said = {row["name"]: row for row in rows}
    assert said["transformer.h.0.ln_1"]["accepted"] and not said["transformer.h.0.attn.c_attn"]["accepted"]
    assert 1e-3 < said["transformer.h.1"]["relative_l2"] < 0.1


def test_what_quantised_weights_change_is_shown_for_their_modes_alone():
    from fusescope.charts.models import generation as chart
    from fusescope.cli.tables import generation as text
    from fusescope.core.records import Record, Time, Times

    how = {
        "first_ms": 1.0,
        "token_ms": None,
        "tokens_per_s": None,
        "memory": {"weights_bytes": 1 << 20, "cache_bytes": 1 << 10, "activations_bytes": None},
        "roof_share": None,
    }
    figures = {"relative_l2": 0.0125, "kl_mean": 0.003, "kl_most": 0.5, "same_token": None}

    def record(impl, **more):
        times = Times(1.0, Time(1.0, 0.9, 1.1, 9, True))
        asked = case("gpt2", phase="decode")
        extra = {"generation": how} | more
        return Record("model:gpt2", impl, asked, "float32", "cpu", "ok", time_ms=times, extra=extra)

    plain, ours = record("fused"), record("fused-int8", quantised=figures)
    assert "output error" not in chart.readable([plain]) and "quantised" not in text.table_of([plain])
    both = chart.readable([plain, ours]).set_index("mode")
    assert both.loc["fused-int8", "output error"] == 0.0125
    line = text.table_of([plain, ours]).splitlines()[-1].split()
    assert line == ["fused-int8", "decode", "2", "0.0125", "0.00300", "0.500", "n/a"]
