"""Compiled models go by tile lists of their padding masks, which are values of the graph."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from fusescope.models import register_attention
from fusescope.ops.attention import attention
from fusescope.ops.attention.dispatch import listed

pytestmark = pytest.mark.slow

SIZES = dict(hidden_size=64, num_attention_heads=2, intermediate_size=64, vocab_size=99)


def _model(kind, **more):
    import transformers

    register_attention()
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(
        **SIZES | dict(num_hidden_layers=2, initializer_range=0.2) | more
    )
    return getattr(transformers, f"{kind}Model")._from_config(config, attn_implementation="fusescope").eval()


def _padded(length, kept):
    there = torch.ones(2, length, dtype=torch.long)
    there[0, kept:] = 0
    return torch.randint(3, 99, (2, length)), there


def _operators(graph) -> list[str]:
    return [n.target.name() for n in graph.graph.nodes if str(n.target).startswith("fusescope.")]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "kind, more",
    [("Bert", {}), ("Mistral", dict(num_key_value_heads=1, sliding_window=70, pad_token_id=0))],
)
def test_a_compiled_model_makes_lists_once_a_forward(kind, more):
    """Equal to eager, one graph for all padding of a shape, lists made with the mask and shared by layers."""
    torch._dynamo.reset()
    model, found = _model(kind, **more), []

    def backend(graph, inputs):
        found.append(_operators(graph))
        return graph

    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend=backend)
    with torch.no_grad():
        for kept in (67, 3, 129):
            ids, there = _padded(130, kept)
            a, b = (m(ids, attention_mask=there).last_hidden_state for m in (model, compiled))
            assert (a - b)[there.bool()].abs().max() < 2e-5
    assert found == [["fusescope::attention_lists"] + 2 * ["fusescope::attention_listed"]]


@pytest.mark.long
def test_masks_of_the_caller_and_graph_breaks():
    """What the caller gives has lists for each layer: it may change between calls. Across graph breaks lists
    go with their mask."""
    torch._dynamo.reset()
    model = _model("Bert", num_hidden_layers=1)
    ids = torch.randint(3, 99, (1, 20))
    keep = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        for last in (20, 7):
            keep[..., last:] = False
            a, b = (m(ids, attention_mask=keep).last_hidden_state for m in (model, compiled))
            assert (a - b).abs().max() < 2e-5
        for layer in model.encoder.layer:
            layer.attention.register_forward_hook(lambda *_: torch._dynamo.graph_break())
        ids, there = _padded(70, 33)
        torch._dynamo.reset()
        a, b = (m(ids, attention_mask=there).last_hidden_state for m in (model, compiled))
        assert (a - b)[there.bool()].abs().max() < 2e-5


@pytest.mark.long
def test_lengths_may_vary_within_one_graph():
    torch._dynamo.reset()
    counted, model = CompileCounterWithBackend("eager"), _model("Bert", num_hidden_layers=1)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counted)
    with torch.no_grad():
        for length in (70, 131, 64):
            ids, there = _padded(length, 40)
            a, b = (m(ids, attention_mask=there).last_hidden_state for m in (model, compiled))
            assert (a - b)[there.bool()].abs().max() < 2e-5
    assert counted.frame_count == 1


@pytest.mark.parametrize("shape", [(1, 1, 70, 90), (2, 1, 1, 90), (1, 4, 70, 90)])
def test_the_operators(shape):
    keep = torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.3
    q, k, v = torch.randn(2, 4, 70, 64), torch.randn(2, 2, 90, 64), torch.randn(2, 2, 90, 64)
    bias = torch.randn(1, 4, 1, 90)
    with torch.no_grad():
        made = listed.lists(keep, 70, 90)
        out = listed.attend(q, k, v, made, shape, bias=bias, scale=0.2, out_bshd=True)
        assert torch.equal(out, attention(q, k, v, keep, bias=bias, scale=0.2))
        assert out.transpose(1, 2).is_contiguous()
    checks = [
        (torch.ops.fusescope.attention_lists.default, (keep, 70, 90)),
        (torch.ops.fusescope.attention_listed.default, (q, k, v, made, *shape[:2], None, bias, False)),
    ]
    for operator, args in checks:
        assert set(torch.library.opcheck(operator, args).values()) == {"SUCCESS"}


def test_lists_of_another_mask_are_refused():
    q = torch.randn(3, 4, 70, 64)
    made = listed.lists(torch.ones(2, 1, 70, 70, dtype=torch.bool), 70, 70)
    with pytest.raises(ValueError, match="the plan holds masks for 2 batch entries and 1 heads"):
        listed.attend(q, q, q, made, (2, 1))
    with pytest.raises(ValueError, match="lists of such a mask have 1567 numbers, not 1045"):
        listed.attend(q, q, q, made, (3, 1))
