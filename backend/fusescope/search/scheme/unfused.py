"""The layer's 15 operators as plain torch functions, any floating dtype and device, and the layer as their
chain.

Arguments and results are in the order of ``layer.OPERATORS``; torch is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusescope.search.scheme.layer import OPERATORS, VALUES, Sizes, flows

EPS = 1e-12
"""Of both LayerNorms, as in BERT."""

_EXTRA = {2: ("heads",), 5: ("empty_rows",)}  # what a function takes besides the tensors that flow


def linear(x, weight):
    """(…, in) times a weight of (out, in): (…, out)."""
    import torch

    return torch.nn.functional.linear(x, weight)


def bias(x, bias):
    """(…, n) plus a bias of (n,)."""
    return x + bias


def head_split(qkv, heads):
    """(batch, seq, 3 * heads * head_dim), queries before keys before values, as three contiguous (batch,
    heads, seq, head_dim)."""
    batch, seq, width = qkv.shape
    return tuple(
        qkv.view(batch, seq, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4).contiguous().unbind(0)
    )


def scores(q, k):
    """q k^T / sqrt(head_dim): (batch, heads, seq, seq); scaled within the product, before it is rounded."""
    import torch

    batch, heads, seq, head_dim = q.shape
    keys = k.reshape(batch * heads, -1, head_dim).transpose(1, 2)
    product = torch.baddbmm(
        q.new_empty(1, 1, 1), q.reshape(batch * heads, seq, head_dim), keys, beta=0, alpha=head_dim**-0.5
    )
    return product.view(batch, heads, seq, -1)


def mask(scores, mask):
    """The scores where a bool mask broadcastable to them keeps, minus infinity elsewhere; unchanged where
    mask is None."""
    import torch

    return scores if mask is None else torch.where(mask, scores, float("-inf"))


def softmax(scores, empty_rows=None):
    """Softmax over keys; zeros in the rows that ``empty_rows`` marks (bool, broadcastable to (batch, heads,
    seq, 1)), if any."""
    import torch

    found = torch.softmax(scores, -1)
    return found if empty_rows is None else found.masked_fill(empty_rows, 0.0)


def context(probabilities, v):
    """The values weighted: (batch, heads, seq, head_dim)."""
    import torch

    return torch.matmul(probabilities, v)


def head_merge(context):
    """(batch, heads, seq, head_dim) as contiguous (batch, seq, heads * head_dim)."""
    return context.transpose(1, 2).flatten(2).contiguous()


def bias_residual(x, bias, residual):
    """x + bias + residual."""
    return x + bias + residual


def layernorm(x, weight, bias):
    """LayerNorm over the last dimension."""
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def bias_gelu(x, bias):
    """GELU (with erf) of x + bias."""
    import torch

    return torch.nn.functional.gelu(x + bias)


def bias_residual_layernorm(x, bias, residual, norm_weight, norm_bias):
    """LayerNorm of x + bias + residual."""
    return layernorm(x + bias + residual, norm_weight, norm_bias)


def empty_rows(mask):
    """The queries for which a mask keeps no key, as ``softmax`` takes them; None where there is none. Looks
    at the mask's values, so it belongs before any timing."""
    if mask is None:
        return None
    rows = ~mask.any(-1, keepdim=True)
    return rows if bool(rows.any()) else None


def inputs(sizes: Sizes, dtype: str, device: str, seed: int, mask=None) -> dict[str, Any]:
    """Random x and parameters at the scale of a trained layer (weights ~ 1/sqrt(in)), and the mask, by the
    names of ``layer.VALUES``. mask: bool, broadcastable to (batch, heads, seq, seq), or None; ValueError
    where it and sizes disagree."""
    import torch

    if (mask is None) != (sizes.density is None):
        raise ValueError("a layer has a mask exactly where its sizes give a density")
    g = torch.Generator(device=device).manual_seed(seed)
    found = {}
    for name in flows()[0]:
        dims = VALUES[name].dims(sizes)
        if name == "mask":
            found[name] = mask
            continue
        t = torch.randn(dims, generator=g, device=device, dtype=torch.float32)
        if name.endswith("_weight") and len(dims) == 2:
            t = t / dims[-1] ** 0.5
        elif VALUES[name].kind == "parameter":
            t = 0.1 * t + (1.0 if name.endswith("weight") else 0.0)
        found[name] = t.to(getattr(torch, dtype))
    return found | {"heads": sizes.heads, "empty_rows": empty_rows(mask)}


def run(values: Mapping[str, Any], numbers: Sequence[int] = range(15)) -> dict[str, Any]:
    """These operators one after the other on what ``inputs`` gives (and, from a later start, what came
    before): everything known after the last, by name; ``run(inputs(…))["out"]`` is the layer's answer."""
    known = dict(values)
    for o in (OPERATORS[i] for i in numbers):
        got = globals()[o.function](*(known[name] for name in (*o.inputs, *_EXTRA.get(o.number, ()))))
        known.update(zip(o.outputs, got if len(o.outputs) > 1 else (got,)))
    return known
