"""Modes flash and flash-graph: what FlashAttention-4 is given, what is refused, and the result. On the CPU a
stand-in computes what its documentation says of its arguments."""

import dataclasses
import sys
import types
from importlib import metadata

import pytest
import torch

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.models.by_config import config_file
from fusescope.models.describe import modes as listing
from fusescope.models.hugging_face import flash, peers
from fusescope.models.inspect import backends, parts
from fusescope.models.run import build, capture, modes, tolerance
from tests.models import config_files
from tests.models.modes_tools import worst
from tests.models.tiny_models import SIZES, built, case


def _attention(q, k, v, scale, softcap, causal, window, there=None):
    assert q.dim() == 4 and q.stride(3) == k.stride(3) == v.stride(3) == 1
    assert q.shape[2] % k.shape[2] == 0 and k.shape[:3] == v.shape[:3] and q.dtype.itemsize == 2
    left, right = (window[0], 0) if causal else window
    distance = torch.arange(k.shape[1])[None, :] - torch.arange(q.shape[1])[:, None]
    distance = distance - (k.shape[1] - q.shape[1])  # aligned at the end
    keep = torch.ones_like(distance, dtype=torch.bool)
    keep &= distance >= -left if left is not None else keep
    keep &= distance <= right if right is not None else keep
    keep = keep[None, None]
    if there is not None:
        keep = keep & (torch.arange(k.shape[1]) < there[:, None])[:, None, None]
    groups = q.shape[2] // k.shape[2]
    q, k, v = (t.transpose(1, 2).float() for t in (q, k, v))
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    return (scores.masked_fill(~keep, float("-inf")).softmax(-1) @ v).transpose(1, 2)


@pytest.fixture
def calls(monkeypatch):
    """flash_attn.cute, and this CPU as a device that has it; the arguments of its calls."""
    seen = []

    def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(None, None), softcap=0.0):
        seen.append({"q": q.shape, "k": k.shape, "causal": causal, "window": window_size, "cap": softcap})
        return _attention(q, k, v, softmax_scale, softcap, causal, window_size).to(q.dtype), None

    def flash_attn_varlen_func(q, k, v, seqused_k=None, softmax_scale=None, softcap=0.0):
        assert seqused_k.dtype == torch.int32 and seqused_k.shape == q.shape[:1]
        seen.append({"q": q.shape, "k": k.shape, "used": seqused_k.tolist()})
        found = _attention(q, k, v, softmax_scale, softcap, False, (None, None), seqused_k)
        return found.to(q.dtype), None

    cute = types.ModuleType("flash_attn.cute")
    cute.flash_attn_func, cute.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    monkeypatch.setitem(sys.modules, "flash_attn.cute", cute)
    here = dataclasses.replace(listing.MODES["flash"], devices=("cpu", "cuda"), package=None)
    monkeypatch.setitem(listing.MODES, "flash", here)
    return seen


@pytest.mark.parametrize(
    "name, asked, given",
    [
        ("bert-base", {}, {"causal": False, "window": (None, None)}),
        ("bert-base", {"mask": "causal"}, {"causal": True}),
        ("bert-base", {"mask": "sliding_window:left=3,right=2"}, {"window": (3, 2)}),
        ("vit-base", {}, {"causal": False}),
        ("gpt2", {"phase": "prefill", "lengths": "9+17"}, {"causal": True}),
        ("llama-small", {"phase": "prefill"}, {"causal": True, "q": (2, 17, 2, 32)}),
        ("llama-small", {"phase": "decode"}, {"causal": False, "q": (2, 1, 2, 32), "k": (2, 18, 1, 32)}),
        ("gpt2", {"phase": "decode", "lengths": "9+17"}, {"used": [10, 18]}),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_right_and_given_the_identical_mask(calls, name, asked, given, dtype):
    assert max(worst(name, case(name, **asked), "flash", dtype)) < 1
    for key, value in given.items():
        if key == "k":  # as many KV heads as the model has
            value = (*value[:2], models.config(name, case(name, **asked)).kv_heads or 2, value[3])
        assert all(call[key] == value for call in calls), key
    assert len(calls) == 4  # two layers, compiled and called


def test_a_generation_and_the_parts_of_a_forward(calls):
    whole, model = case("llama-small", phase="generate", new=3), built("llama-small", "float16")
    inputs = build.inputs(model, whole)
    out, exact = modes.make("flash", model, inputs)(), tolerance.reference(model, inputs)
    assert float((out.double() - exact).norm() / exact.norm()) < tolerance.allowed_norm(2, "float16")
    assert {call["k"][1] for call in calls} == {17, 18, 19}
    inputs = build.inputs(model, case("llama-small", phase="prefill"))
    found = parts.measure("flash", model, inputs, None)
    assert all(found[part]["ms"] > 0 for part in ("qkv", "attention", "output", "ffn", "norm"))


def in_graph(monkeypatch):
    """flash-graph on this CPU, its capture a plain call."""
    given = dataclasses.replace(listing.MODES["flash-graph"], devices=("cpu",), package=None)
    monkeypatch.setitem(listing.MODES, "flash-graph", given)
    monkeypatch.setattr(capture, "captured", lambda call, *_: call)


@pytest.mark.parametrize("kind", ["llama-small", "phi3"])
def test_a_generation_that_is_captured_goes_by_lengths(calls, monkeypatch, tmp_path, kind):
    monkeypatch.setattr(config_file, "asked", config_files.asked)
    in_graph(monkeypatch)
    name, made = kind, case
    if kind == "phi3":
        name, made = config_files.write(tmp_path, kind), config_files.case
    whole = made(name, phase="generate", new=3)
    model = build.build(name, whole, "float16")
    inputs = build.inputs(model, whole)
    run, exact = modes.make("flash-graph", model, inputs), tolerance.reference(model, inputs)
    calls.clear()
    assert float((run().double() - exact).norm() / exact.norm()) < tolerance.allowed_norm(2, "float16")
    assert [c["used"] for c in calls if "used" in c] == [[18, 18]] * 2 + [[19, 19]] * 2
    assert [c["causal"] for c in calls if "used" not in c] == [True] * 2
    assert all(c["k"][1] == 20 for c in calls if "used" in c)


def test_a_captured_generation_through_a_window_is_refused_by_name(calls, monkeypatch, tmp_path):
    monkeypatch.setattr(config_file, "asked", config_files.asked)
    in_graph(monkeypatch)
    name = config_files.write(tmp_path, "mistral", sliding_window=8)
    whole = config_files.case(name, phase="generate", new=3)
    model = build.build(name, whole, "float16")
    with pytest.raises(Unsupported, match="does not take this: a sliding window over caches"):
        modes.make("flash-graph", model, build.inputs(model, whole))


@pytest.mark.parametrize(
    "name, asked, dtype, text",
    [
        ("bert-base", {"lengths": "9+17"}, "float16", "padding"),
        ("bert-base", {"mask": "strided:window=4,stride=4"}, "float16", "mask strided"),
        ("bert-base", {}, "float32", "float32; it takes float16 and bfloat16"),
    ],
)
def test_what_it_does_not_take_is_refused_by_name(calls, name, asked, dtype, text):
    model, whole = built(name, dtype), case(name, **asked)
    with pytest.raises(Unsupported, match=f"FlashAttention-4 does not take this: {text}"):
        modes.make("flash", model, build.inputs(model, whole))
    assert not calls


def test_what_the_package_refuses_is_said(calls, monkeypatch):
    def refuse(*args, **how):
        raise AssertionError("head_dim must be divisible by 64")

    monkeypatch.setattr(sys.modules["flash_attn.cute"], "flash_attn_func", refuse)
    model = built("bert-base", "float16")
    with pytest.raises(Unsupported, match="FlashAttention-4 does not take this: head_dim must be"):
        modes.make("flash", model, build.inputs(model, case("bert-base")))


@pytest.mark.parametrize("keyword", ["position_bias", "s_aux", "cu_seq_lens_q"])
def test_keywords_that_change_the_result_are_refused(calls, keyword):
    q = torch.randn(1, 2, 4, 32).half()
    with pytest.raises(Unsupported, match="FlashAttention-4 does not take this"):
        flash.forward(torch.nn.Module(), q, q, q, None, **{keyword: q})
    with pytest.raises(Unsupported, match="a mask as a tensor"):
        flash.forward(torch.nn.Module(), q, q, q, torch.ones(1, 1, 4, 4, dtype=torch.bool))
    with pytest.raises(Unsupported, match="2 causal queries over a cache of 4 keys"):
        flash.forward(torch.nn.Module(), q[:, :, :2], q, q, None)
    assert flash.forward(torch.nn.Module(), q, q, q, None, softcap=3.0)[0].shape == (1, 4, 2, 32)
    assert calls[-1]["cap"] == 3.0


def test_hugging_faces_masks_are_told_apart():
    import transformers.masking_utils as hf

    def asked(function, **more):
        given = {"q_length": 8, "kv_length": 8, "attention_mask": None, "local_size": 3}
        return flash.mask(mask_function=function, **(given | {"allow_is_causal_skip": True} | more))

    assert asked(hf.sliding_window_causal_mask_function(3)) == flash.Window(2, 0)
    assert asked(hf.sliding_window_bidirectional_mask_function(3)) == flash.Window(3, 3)
    assert asked(hf.causal_mask_function, local_size=None) is None
    with pytest.raises(Unsupported, match="a padding mask"):
        asked(hf.causal_mask_function, attention_mask=torch.ones(1, 8))
    chunked = hf.chunked_causal_mask_function(3, torch.zeros(1, dtype=torch.long))
    either = hf.or_masks(hf.sliding_window_overlay(3), hf.causal_mask_function)
    for other in (chunked, either, hf.causal_mask_function):
        with pytest.raises(Unsupported, match="not full, causal or a sliding window"):
            asked(other)
    with pytest.raises(Unsupported, match="not full, causal or a sliding window"):
        asked(hf.sliding_window_causal_mask_function(3), q_length=2, q_offset=1)


@pytest.mark.parametrize("cached", [False, True])
def test_a_models_own_sliding_window(calls, cached):
    """Mistral's, as a config.json may say it, also for one query over a cache."""
    import transformers

    peers.register_peers()
    sizes = dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=99
    )
    config = transformers.MistralConfig(**sizes, intermediate_size=64, sliding_window=5)
    ids, found = torch.arange(3, 20)[None], []
    for attention in ("eager", flash.NAME):
        torch.manual_seed(1)
        model = transformers.MistralModel._from_config(config, attn_implementation=attention).eval().half()
        with torch.no_grad():
            cache = transformers.DynamicCache() if cached else None
            for part in ids.split(16, 1) if cached else (ids,):
                out = model(input_ids=part, past_key_values=cache, use_cache=cached).last_hidden_state
        found.append(out)
    assert float((found[0] - found[1]).abs().max()) < 1e-2
    assert all(call["window"] == (4, 0) for call in calls) and len(calls) == (4 if cached else 2)


def test_without_the_package_it_is_listed_with_the_reason(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    for way in ("flash", "flash-graph"):
        assert "exists on cuda" in models.mode("gpt2", way, "cpu").reason
        assert "flash-attn-4, which is not installed" in models.mode("gpt2", way, "cuda:0").reason
    monkeypatch.setattr(metadata, "version", lambda name: "4")
    assert models.mode("gpt2", "flash", "cuda:0").reason is None
    assert "position biases" in models.mode("t5-small", "flash", "cuda:0").reason
    monkeypatch.setitem(sys.modules, "flash_attn.cute", None)
    q = torch.randn(1, 2, 4, 32).half()
    with pytest.raises(Unsupported, match="FlashAttention-4 is not installed"):
        flash.forward(torch.nn.Module(), q, q, q, None)


def test_its_kernel_is_told_from_that_of_torch():
    four = "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__0"
    assert backends.named({four}, set()) == "flash_attention_4"
    assert backends.named({"pytorch_flash::flash_fwd_kernel<...>"}, set()) == "flash_attention"


GPU = [
    ("bert-base", {}),
    ("bert-base", {"mask": "causal"}),
    ("bert-base", {"mask": "sliding_window:left=30,right=20"}),
    ("gpt2", {"phase": "prefill", "lengths": "77+128"}),
    ("llama-small", {"phase": "prefill"}),
    ("llama-small", {"phase": "decode"}),
    ("llama-small", {"phase": "decode", "lengths": "77+128"}),
    ("llama-small", {"phase": "generate", "new": 4}),
]


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["flash", "flash-graph"])
@pytest.mark.parametrize("name, asked", GPU)
def test_the_package_itself(name, asked, way):
    pytest.importorskip("flash_attn.cute", reason="FlashAttention-4 is not installed (package flash-attn-4)")
    peers.register_peers()
    whole = models.validate(name, SIZES | {"heads": 4, "head_dim": 64, "seq": 128} | asked)
    model = build.build(name, whole, "float16", "cuda:0")
    inputs = build.inputs(model, whole)
    run = modes.make(way, model, inputs)
    assert run.graph == (way == "flash-graph")
    inputs["input_ids"].copy_(build.inputs(model, whole, 1)["input_ids"])
    out, exact = run(), tolerance.reference(model, inputs)
    there = tolerance.valid(inputs, out)
    out, exact = (out, exact) if there is None else (out[there], exact[there])
    error = float((out.double() - exact).norm() / exact.norm())
    assert error < tolerance.allowed_norm(2, "float16")
    assert backends.ran(run, "cuda:0") == "flash_attention_4"
