"""Compiled models go by tile lists of their padding masks, which are values of the graph."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from fusescope import kernels
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


WINDOW = 32
SCORED = {
    "Gemma2": dict(head_dim=32, query_pre_attn_scalar=32),
    "GptOss": dict(head_dim=32, num_local_experts=2, num_experts_per_tok=1),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("compiled", (False, True))
@pytest.mark.parametrize("kind", SCORED)
def test_models_with_a_soft_cap_or_sinks_skip_tiles_of_padding(kind, compiled, device, monkeypatch):
    """What the kernel gets in each layer lists no more tiles than hold a key that is there; equal to Hugging
    Face's own attention."""
    torch._dynamo.reset()
    same = dict(num_key_value_heads=1, pad_token_id=0, sliding_window=WINDOW)
    model, calls, own = _model(kind, **same, **SCORED[kind]), [], kernels.call
    theirs = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    theirs.load_state_dict(model.state_dict())
    model, theirs = model.to(device), theirs.to(device)
    windows = [{"full_attention": None, "sliding_attention": WINDOW}[t] for t in theirs.config.layer_types]
    assert len(set(windows)) == 2

    def call(op, *args, impl, more):
        calls.append((op, _live_tiles(*more[:2])))
        return own(op, *args, impl=impl, more=more)

    monkeypatch.setattr(kernels, "call", call)
    counted = CompileCounterWithBackend("aot_eager")
    run = torch.compile(model, fullgraph=True, dynamic=False, backend=counted) if compiled else model
    with torch.no_grad():
        for kept in (67, 3, 129):
            ids, there = (t.to(device) for t in _padded(130, kept))
            calls.clear()
            a, b = (m(ids, attention_mask=there, use_cache=False).last_hidden_state for m in (run, theirs))
            assert (a - b)[there.bool()].abs().max() < 1e-4
            assert calls == [("attention_scored", _tiles(there, window)) for window in windows]
    assert counted.frame_count == compiled


def _live_tiles(buffer, layout) -> int:
    """How many tiles a plan's lists hold, by the last number of row_ptr (plan/buffer.py)."""
    words = [int(word) for word in layout.split()[4:]]
    return int(buffer[sum(words[:5]) - 1])


def _tiles(there, window) -> int:
    """64 x 64 tiles with a key that is there and that causality and the window let a query see."""
    position = torch.arange(there.shape[1], device=there.device)
    distance = position[:, None] - position
    keep = (distance >= 0) & (distance < (window or len(position))) & there[:, None].bool()
    edge = -(-len(position) // 64)
    more = edge * 64 - len(position)
    squares = torch.nn.functional.pad(keep, (0, more, 0, more)).view(-1, edge, 64, edge, 64)
    return int(squares.any(4).any(2).sum())


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
        for more in ({}, {"softcap": 2}, {"sinks": torch.linspace(-2, 3, 4).half()}):
            out = listed.attend(q, k, v, made, shape, bias=bias, scale=0.2, out_bshd=True, **more)
            assert torch.equal(out, attention(q, k, v, keep, bias=bias, scale=0.2, **more))
            assert out.transpose(1, 2).is_contiguous()
    checks = [(torch.ops.fusescope.attention_lists.default, (keep, 70, 90))]
    checks += [
        (torch.ops.fusescope.attention_listed.default, (q, k, v, made, *shape[:2], None, bias, False, *more))
        for more in ((), (2.0, torch.ones(4)))
    ]
    for operator, args in checks:
        assert set(torch.library.opcheck(operator, args).values()) == {"SUCCESS"}


def test_lists_of_another_mask_are_refused():
    q = torch.randn(3, 4, 70, 64)
    made = listed.lists(torch.ones(2, 1, 70, 70, dtype=torch.bool), 70, 70)
    with pytest.raises(ValueError, match="the plan holds masks for 2 batch entries and 1 heads"):
        listed.attend(q, q, q, made, (2, 1))
    with pytest.raises(ValueError, match="one of each of the 4 query heads"):
        listed.attend(q, q, q, made, (2, 1), sinks=torch.zeros(3))
    with pytest.raises(ValueError, match="lists of such a mask have 1567 numbers, not 1045"):
        listed.attend(q, q, q, made, (3, 1))
