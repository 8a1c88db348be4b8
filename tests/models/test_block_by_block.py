"""A reference whose blocks are converted when they are called: equal to a copy, and nothing is kept of it."""

import pytest
import torch

from fusescope.models.accuracy import block_by_block
from fusescope.models.run import build, tolerance
from fusescope.models.run.decoder import quantised
from tests.models.tiny_models import ONE_OF_A_FAMILY, built, cases


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ONE_OF_A_FAMILY)
def test_it_is_the_copy_bit_for_bit(name, monkeypatch):
    model = built(name, "float16")
    for asked in cases(name):
        inputs = build.inputs(model, asked)
        whole = tolerance.reference(model, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(build, "_WHOLE_GIB", 0.0)
            found = tolerance.reference(model, inputs)
        assert found.dtype == torch.float64 and torch.equal(found, whole), asked


def test_blocks_are_converted_while_they_are_called():
    """A block's weights are the model's own before and after, also where it fails; tied weights stay one."""
    model = built("gpt2", "float16")
    found = block_by_block.convert(model.module, torch.float64)
    own, seen = dict(model.module.named_parameters(remove_duplicate=False)), []
    given = dict(found.named_parameters(remove_duplicate=False))
    for name, tensor in given.items():
        assert (tensor is own[name]) == (".h." in name) and (
            ".h." in name or tensor.dtype == torch.float64
        ), name
    assert given["lm_head.weight"] is given["transformer.wte.weight"]
    block = found.transformer.h[1]
    block.mlp.register_forward_pre_hook(lambda part, _: seen.append({p.dtype for p in block.parameters()}))
    with pytest.raises(RuntimeError):
        block(torch.zeros(1, 3, 5, dtype=torch.float64))
    assert all(p is own[n] for n, p in found.named_parameters(remove_duplicate=False) if ".h." in n)
    ids = torch.tensor([[1, 2, 3]])
    found(ids)
    assert seen == [{torch.float64}] and all(p.dtype == torch.float16 for p in block.parameters())
    assert all(p.dtype == torch.float16 for p in model.module.parameters()), "the model itself was converted"


def test_a_block_that_has_two_names_gets_its_own_weights_back():
    """By its second name it was taken for something outside all blocks, and converted for good."""
    block = torch.nn.Linear(3, 3).half()
    model = torch.nn.Sequential(torch.nn.Sequential())
    model[0].layers, model[0].others = (torch.nn.ModuleList([block, block]) for _ in range(2))
    found = block_by_block.convert(model, torch.float64)
    shared = found[0].layers[1]
    assert shared(torch.ones(1, 3, dtype=torch.float64)).dtype == torch.float64
    assert shared.weight is block.weight and shared.bias is block.bias


def test_a_change_is_of_the_weights_by_name():
    model = built("gpt2", "float32")
    change = quantised.rounding(model.family, model.config, "int8")
    inputs = build.inputs(model, cases("gpt2")[0])
    whole = model.reference(torch.float64)
    with torch.no_grad():
        for name, tensor in whole.named_parameters():
            tensor.copy_(change(name, tensor.clone()))
    found = tolerance.reference(model, inputs, quantised="int8")
    expected = build.call(whole, tolerance.part(inputs, 0, 2, torch.float64))
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(found, tolerance.reference(model, inputs), rtol=0, atol=1e-3)


def test_a_long_cache_is_taken_in_pieces_of_the_batch(monkeypatch):
    model = built("llama-small", "float32")
    inputs = build.inputs(model, next(c for c in cases("llama-small") if c["phase"] == "decode"))
    whole, calls, call = tolerance.reference(model, inputs), [], build.call
    monkeypatch.setattr(tolerance, "_PIECE", inputs["cache"].size // 2)
    monkeypatch.setattr(build, "call", lambda *given: calls.append(given) or call(*given))
    assert torch.allclose(tolerance.reference(model, inputs), whole, rtol=1e-12) and len(calls) == 2
