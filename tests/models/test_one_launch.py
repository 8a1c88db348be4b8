"""A decoding step whose layers are one launch: its logits are those of the operators one by one, and it is
taken for what it takes alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import fusescope
from fusescope.kernels import loading
from fusescope.models.run import build
from fusescope.models.run.decoder import mode, one_launch
from tests.models.test_generate import model, prompts, theirs

NAMES = ("gpt2", "llama-small", "qwen3-0.6b")


@pytest.fixture
def one(monkeypatch):
    """How many steps were one launch, which every shape is to be."""
    counted = []
    own = one_launch.OneLaunch.__call__

    def call(self, *args):
        found = own(self, *args)
        counted.append(found is not None)
        return found

    monkeypatch.setattr(one_launch, "is_faster", lambda x, cache: True)
    monkeypatch.setattr(one_launch.OneLaunch, "__call__", call)
    return counted


def _decoder(name, batch, device="cpu", dtype="float32", quantised=None, **more):
    case = {"batch": batch, "seq": 21, "phase": "decode", "layers": 2, **more}
    asked = fusescope.models.describe.cases.validate(name, case)
    found = build.build(name, asked, dtype, device)
    return mode.FusedDecoder(found, build.inputs(found, asked), quantised)


@pytest.mark.parametrize("weights", [None, "int8", "fp8"])
@pytest.mark.parametrize("lengths", ["fixed", "uniform:low=0.4"])
@pytest.mark.parametrize("name", [*NAMES[:-1], pytest.param(NAMES[-1], marks=pytest.mark.slow)])
def test_logits_are_those_of_the_operators(one, monkeypatch, name, lengths, weights):
    decoder = _decoder(name, 3, quantised=weights, lengths=lengths)
    found = decoder()
    assert one == [True]
    assert decoder.layers.one_launch.layers[0].qkv.element_size() == (1 if weights else 4)
    monkeypatch.setattr(one_launch, "is_faster", lambda x, cache: False)
    right = decoder()
    assert one == [True]
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2", "qwen3"])
def test_tokens_are_those_of_hugging_face(one, kind):
    m, ids = model(kind), prompts(2)
    found = fusescope.generate(m, ids, max_new_tokens=12)
    assert one and all(one)
    assert torch.equal(found, theirs(m, ids, None, 12))


@pytest.mark.parametrize("kind", ["mistral", "qwen2"])
def test_windows_are_not_taken(one, kind):
    from tests.models.test_generate import WINDOWS

    m, ids = model(kind, **WINDOWS[kind]), prompts(2)
    assert torch.equal(fusescope.generate(m, ids, max_new_tokens=12), theirs(m, ids, None, 12))
    assert not one


def test_fp8_caches_and_records_are_not_taken(one):
    _decoder("llama-small", 2, dtype="float16", quantised="fp8-cache")()
    _decoder("llama-small", 2)(record=lambda name, tensor: None)
    assert not one


def test_what_no_kernel_takes_is_computed_one_by_one(one, monkeypatch):
    def refuse(*args):
        raise RuntimeError("decoder_layers/v1_one_launch: unsupported: multiprocessors that do not hold …")

    decoder = _decoder("gpt2", 1)
    right = decoder()
    again = _decoder("gpt2", 1)
    monkeypatch.setitem(loading._calls, ("decoder_layers", "cpu"), refuse)
    torch.testing.assert_close(again(), right, rtol=1e-4, atol=1e-4)
    again()
    assert one == [True, False]  # asked once


@pytest.mark.parametrize(
    "device, rows, places, faster",
    [("cuda", 1, 1032, True), ("cuda", 1, 1033, False), ("cuda", 2, 100, False), ("cpu", 1, 100, False)],
)
def test_one_sequence_of_few_places_on_a_gpu_is_faster(device, rows, places, faster):
    x = SimpleNamespace(device=torch.device(device), shape=(rows, 1, 64))
    assert one_launch.is_faster(x, SimpleNamespace(shape=(rows, 2, places, 32))) is faster


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [None, "int8", "fp8"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_on_a_gpu(one, monkeypatch, name, dtype, kind):
    decoder = _decoder(name, 2, "cuda:0", dtype, kind)
    found = decoder()
    assert one == [True]
    monkeypatch.setattr(one_launch, "is_faster", lambda x, cache: False)
    right = decoder().float()
    unit = {"float16": 2**-11, "bfloat16": 2**-8}[dtype]
    assert (found.float() - right).norm() <= 16 * unit * right.norm()
