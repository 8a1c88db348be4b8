"""Phase generate in modes that capture, compile or take FlexAttention: two calls of fixed shapes, which move
on on the device. Without a GPU the capture is a trace, replayed: like a CUDA graph it holds every number that
the host knew."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.models.by_config import config_file
from fusescope.models.describe import modes as listing
from fusescope.models.run import build, capture, modes, tolerance
from tests.models import tiny_models
from tests.models.config_files import asked, write
from tests.models.config_files import case as case_of_file

NEW = {"phase": "generate", "new": 6}
WINDOW = {"sliding_window": 8}
PRESETS = ("gpt2", "llama-small")
FILES = {"mistral": WINDOW, "gemma2": WINDOW, "phi3": {}, "qwen3": {}, "falcon": {}}
GRAPHS = ("sdpa-graph", "sdpa-graph-trap", "fusescope-graph")
COMPILED = ("compile-default", "compile-reduce-overhead")


def made(kind: str, folder, dtype: str = "float32", device: str = "cpu", **more):
    """(model, inputs of a generation)."""
    name, case = kind, tiny_models.case
    if kind not in PRESETS:
        name, case = write(folder, kind, **FILES.get(kind, {}), **more), case_of_file
    whole = case(name, **NEW)
    model = build.build(name, whole, dtype, device)
    return model, build.inputs(model, whole)


def traced(call, device, before=lambda: None):
    """As capture.captured: a call becomes what it did, with the numbers of this once."""

    def once():
        call()
        return torch.zeros(())

    before()
    with torch.no_grad():
        call()
        before()
        return make_fx(once)()


def error(out, exact) -> float:
    return float((out.double() - exact).norm() / exact.norm())


def refused(name: str, mode: str) -> bool:
    return any(m.name == mode and m.reason for m in models.modes(name, "cuda:0"))


@pytest.fixture(autouse=True)
def here(monkeypatch, request):
    monkeypatch.setattr(config_file, "asked", asked)
    if "gpu" in {mark.name for mark in request.node.iter_markers()}:
        return
    monkeypatch.setattr(capture, "captured", traced)
    for name in GRAPHS:
        on_cpu = dataclasses.replace(listing.MODES[name], devices=("cpu", "cuda"))
        monkeypatch.setitem(listing.MODES, name, on_cpu)


@pytest.mark.parametrize("kind", [*PRESETS, *FILES])
def test_replays_follow_prompt_and_tokens_and_choose_those_of_eager(kind, tmp_path, monkeypatch):
    model, inputs = made(kind, tmp_path)
    if FILES.get(kind):  # the host reads a prompt's mask, where there is no GPU
        ways = itertools.cycle((lambda call, *_: call, traced))
        monkeypatch.setattr(capture, "captured", lambda *given: next(ways)(*given))
    how = {"do_sample": False, "max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 0}
    tried = 0
    for mode in GRAPHS:
        if refused(model.name, mode):
            continue
        run = modes.make(mode, model, inputs)
        assert run.graph and run.replay is run
        for turn in (0, 1):
            inputs["input_ids"].copy_(inputs["input_ids"].roll(turn, 1))
            expected = model.view("eager").generate(inputs["input_ids"], **how)[:, 17:]
            inputs["forced"].copy_(expected)
            exact, moments = tolerance.reference(model, inputs), []
            for out in (run(), run.marked(partial(moments.append, 1))):
                assert error(out, exact) < tolerance.allowed_norm(2, "float32"), (mode, turn)
                assert out.argmax(-1).tolist() == expected.tolist()
            assert len(moments) == 6 and run.result() is out
        tried += 1
    assert tried


@pytest.mark.parametrize("mode", GRAPHS)
def test_nothing_moves_and_a_longer_cache_is_not_seen(mode):
    """What a graph reads and writes stays where it is; keys that another call left behind are masked."""
    model, inputs = made("llama-small", None)
    expected = modes.make("sdpa", model, inputs)()
    with torch.no_grad():
        listed = listing.MODES[mode]
        parts_of, *calls = modes.fixed(listed, model, inputs, model.view(modes.view(listed)))
        before = [t.data_ptr() for t in parts_of.tensors()]
        run = parts_of.run(*parts_of.calls(*calls), graph=False)
        for side in (inputs["cache"].keys, inputs["cache"].values):
            for tensor in side:
                tensor.normal_(std=9.0)
        assert error(run(), expected) < 1e-6 and error(run(), expected) < 1e-6
    assert before == [t.data_ptr() for t in parts_of.tensors()]
    assert parts_of.chosen.tolist() == expected.argmax(-1).tolist()
    assert parts_of.places.tolist() == [[22]] * 2, "of the place behind the prompt and five tokens"


@pytest.mark.parametrize("wrong", ["places", "sizes", "tokens"])
def test_a_step_that_does_not_move_on_is_seen(wrong):
    model, inputs = made("llama-small", None)
    exact = tolerance.reference(model, inputs)
    listed = listing.MODES["fusescope-graph"]
    parts_of, *calls = modes.fixed(listed, model, inputs, model.view(modes.view(listed)))
    first, following = parts_of.calls(*calls)
    still = getattr(parts_of, wrong)

    def stuck():
        before = still.clone()
        following()
        still.copy_(before)

    out = parts_of.run(first, stuck, graph=False)()
    assert not error(out, exact) <= tolerance.allowed_norm(2, "float32")


def test_parts_are_those_of_the_calls_and_of_compiled_generations_are_refused():
    from fusescope.models.inspect import parts

    model, inputs = made("gpt2", None)
    for mode in ("sdpa-graph", "fusescope-graph"):
        found = parts.measure(mode, model, inputs, None)
        assert all(found[p]["ms"] > 0 for p in ("embedding", "norm", "qkv", "attention", "ffn", "head"))
    for mode in ("compile-default", "sdpa-graph-trap"):
        with pytest.raises(Unsupported, match=f"cannot be told apart in {mode}"):
            parts.measure(mode, model, inputs, None)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile-default", "flex"])
@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
def test_compiled_once_it_follows_and_equals_float64(mode, kind, tmp_path):
    model, inputs = made(kind, tmp_path)
    run = modes.make(mode, model, inputs)
    assert not run.graph
    kept = run()
    counts = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for _ in range(2):
        inputs["input_ids"].copy_(inputs["input_ids"].roll(1, 1))
        exact = tolerance.reference(model, inputs)
        out = run()
        assert error(out, exact) < tolerance.allowed_norm(2, "float32")
        assert not torch.equal(out, kept), "the result of the call before is left alone"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counts


@pytest.mark.slow
def test_a_record_of_a_compiled_generation_has_its_figures(measured):
    found = measured("gpt2", ["sdpa", "compile-default"], phase="generate", new=4, layers=1, seq=8).records
    for r in found:
        assert r.status == "ok", r.reason
        how = r.extra["generation"]
        assert how["first_ms"] > 0 and 0 < how["token_ms"]["p50"] <= how["token_ms"]["p99"]
        assert how["tokens_per_s"] > 0
    first = [r.time_ms.first for r in found]
    assert first[1] > 20 * first[0], "compilation is preparation"


ON_A_GPU = [
    *((kind, mode) for kind in (*PRESETS, "mistral", "gemma2", "phi3", "gpt_oss") for mode in GRAPHS),
    *((kind, mode) for kind in (*PRESETS, "mistral") for mode in (*COMPILED, "flex")),
    *((kind, "fused") for kind in PRESETS),
]


@pytest.mark.gpu
@pytest.mark.parametrize("kind, mode", ON_A_GPU)
def test_on_a_gpu_it_equals_float64_and_follows_its_inputs(kind, mode, tmp_path):
    from torch._inductor.exc import InductorError

    # gpt-oss: grouped products in fp16 cannot be captured; of all experts, else rounding chooses others
    dtype, more = ("bfloat16", WINDOW | {"num_experts_per_tok": 4}) if kind == "gpt_oss" else ("float16", {})
    torch._dynamo.reset()
    model, inputs = made(kind, tmp_path, dtype, "cuda:0", **more)
    if reason := models.mode(model.name, mode, "cuda:0").reason:
        pytest.skip(reason)
    run = modes.make(mode, model, inputs)
    assert run.graph == (mode in (*GRAPHS, "fused", "compile-reduce-overhead"))
    for turn in (0, 1):
        inputs["input_ids"].copy_(inputs["input_ids"].roll(turn, 1))
        exact, moments = tolerance.reference(model, inputs), []
        try:
            found = [run().clone(), run.marked(partial(moments.append, 1)).clone()]
        except InductorError as why:
            assert mode == "flex" and "NoValidChoicesError" in str(why)
            pytest.skip("this torch has no kernel of FlexAttention for one query of grouped heads")
        assert max(error(out, exact) for out in found) < tolerance.allowed_norm(2, dtype), turn
        assert len(moments) == 6


@pytest.mark.gpu
def test_the_attention_of_a_replayed_generation_is_a_fused_one():
    from fusescope.models.inspect import backends

    model, inputs = made("gpt2", None, "float16", "cuda:0")
    for mode, word in (("sdpa-graph", "attention"), ("fusescope-graph", "fusescope")):
        ran = backends.ran(modes.make(mode, model, inputs), "cuda:0")
        assert word in ran and "math" not in ran
