"""Attention over packed sequences of unequal length: what a case is, costs and competes with."""

from __future__ import annotations

from itertools import accumulate

from fusescope.core.schema import Parameter, size
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.attention.describe import window
from fusescope.ops.attention.describe.cases import DTYPES, KV_HEADS, TOLERANCE, complete_heads, head_dim
from fusescope.ops.attention.varlen import attention_varlen, choose
from fusescope.ops.base import Cost, Peer
from fusescope.ops.common.peers import late
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["DTYPES", "TOLERANCE", "attention_varlen"]

NAME = "attention_varlen"
TITLE = "Attention, packed sequences"
SUMMARY = (
    "out = softmax(q kᵀ / √D, causal, within a window or neither) v inside each of several sequences that "
    "lie packed, without padding."
)
FAMILY = "attention_varlen"
PARAMETERS = (
    size("batch", 16, "sequences", 1 << 16, (1, 4, 16, 32, 64)),
    size("heads", 12, "query heads", 1 << 12, (8, 12, 16, 32)),
    KV_HEADS,
    size("seq", 512, "queries and keys of the longest", 1 << 20, (128, 512, 2048, 4096)),
    head_dim(64, (64, 80, 96, 128, 256)),
    Parameter("lengths", "text", "drawn", length_texts.HELP, typical=("full", "drawn")),
    Parameter(
        "causal",
        "choice",
        "no",
        "whether a query sees only keys up to its own position",
        choices=("no", "yes"),
    ),
    *window.PARAMETERS,
)
_PIECE = 1 << 25  # scores held at once by the reference: 256 MiB of float64


def validate(values):
    """The complete case, kv_heads filled in. ValueError for unknown keys, sizes out of bounds, and what does
    not fit together."""
    case = complete_heads(NAME, PARAMETERS, values)
    window.check(case)
    if not any(_lengths(case)):
        raise ValueError(f"at least one sequence has a row, but lengths is {case['lengths']}")
    return case


def _lengths(values) -> tuple[int, ...]:
    return length_texts.of(values["lengths"], values["batch"], values["seq"])


def tolerance(values, dtype):
    """It shrinks with the outputs, which average over the keys: the fewest that a row sees (one under
    causal)."""
    seen = window.of_case(values)
    return length_texts.tolerance(min(window.fewest(n, seen) for n in _lengths(values) if n), dtype)


def inputs(values, dtype, device, seed, contiguous=True):
    """q (T, H, D), k and v (T, H_kv, D), cu_seqlens int32 (batch + 1,), causal, window (None where there is
    none), and for the peers that need them ``padded``: the same values as (batch, heads, longest, D), zeros
    beyond a sequence's end, and ``lengths`` as a tuple.

    contiguous=False: q, k and v are parts of one packed (T, H + 2 H_kv, D), which begins one element late.
    """
    import torch

    g = generator_for(device, seed)
    h, kv, d, lengths = values["heads"], values["kv_heads"], values["head_dim"], _lengths(values)
    total = sum(lengths)
    q, k, v = (random_tensor((total, n, d), dtype, device, g) for n in (h, kv, kv))
    padded = tuple(_pad(t, lengths) for t in (q, k, v))
    if not contiguous:
        storage = q.new_empty(total * (h + 2 * kv) * d + 1)
        packed = storage[1:].view(total, h + 2 * kv, d)
        packed.copy_(torch.cat([q, k, v], 1))
        q, k, v = packed.split((h, kv, kv), 1)
    cu = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens": cu,
        "causal": values["causal"] == "yes",
        "window": window.given(values),
        "padded": padded,
        "lengths": lengths,
    }


def _pad(rows, lengths):
    """(T, heads, D) as (batch, heads, longest, D)."""
    import torch

    pieces = torch.nn.utils.rnn.pad_sequence(rows.split(list(lengths)), batch_first=True)
    return pieces.transpose(1, 2).contiguous()


def arguments(inputs):
    options = {name: inputs[name] for name in ("causal", "window") if inputs[name] is not None}
    return (inputs["q"], inputs["k"], inputs["v"], inputs["cu_seqlens"], inputs["cu_seqlens"]), options


def call(inputs, impl):
    args, kwargs = arguments(inputs)
    return attention_varlen(*args, **kwargs, impl=impl)


def auto(inputs):
    return choose(inputs["q"], inputs["k"], inputs["v"], window=inputs["window"])


def reference(inputs):
    """The specification in float64, sequence by sequence and in pieces of rows; (T, H, D)."""
    cu = inputs["cu_seqlens"].tolist()
    return specified(inputs["q"], inputs["k"], inputs["v"], cu, cu, inputs["causal"], inputs["window"])


def specified(q, k, v, cu_q, cu_k, causal, window=None):
    """What attention_varlen means, for any lengths of queries and keys (lists of numbers), in float64."""
    import torch

    total, h, d = q.shape
    kv = k.shape[1]
    out = torch.zeros(total, h, d, dtype=torch.float64, device=q.device)
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        keys, values = (t[k0:k1].double().transpose(0, 1) for t in (k, v))  # (H_kv, m, D)
        step = max(1, _PIECE // (h * max(1, k1 - k0)))
        for first in range(q0, q1 if k1 > k0 else q0, step):
            last = min(first + step, q1)
            rows = q[first:last].double().view(last - first, kv, h // kv, d).permute(1, 2, 0, 3)
            scores = rows @ keys[:, None].transpose(2, 3) * d**-0.5
            position = torch.arange(first - q0, last - q0, device=q.device)[:, None] + (k1 - k0) - (q1 - q0)
            behind = position - torch.arange(
                k1 - k0, device=q.device
            )  # keys that the query is behind the key
            left, right = window or (-1, -1)
            if causal or right >= 0:
                scores.masked_fill_(behind < (0 if causal else -right), float("-inf"))
            if left >= 0:
                scores.masked_fill_(behind > left, float("-inf"))
            weights = torch.softmax(scores, -1).nan_to_num_(0.0)  # a row without a key
            out[first:last] = (weights @ values[:, None]).permute(2, 0, 1, 3).reshape(last - first, h, d)
    return out


def cost(values, dtype):
    """Two products of 2·D operations per score: live ones (effective), and those of 64 × 64 tiles with any
    (executed); tensors once."""
    size = 4 if dtype == "float32" else 2
    h, kv, d, lengths = values["heads"], values["kv_heads"], values["head_dim"], _lengths(values)
    seen, total = window.of_case(values), sum(_lengths(values))
    live = sum(window.live(n, seen) for n in lengths)
    executed = sum(window.live_tiles(n, seen) for n in lengths) * 64 * 64
    notes = {"rows": total, "share of padded rows": total / (len(lengths) * max(lengths))}
    return Cost(
        4.0 * d * h * live,
        4.0 * d * h * executed,
        size * d * total * (h + 2 * kv),
        size * d * total * h,
        "matrix",
        notes,
    )


PEERS = {
    "eager": Peer(
        late("attention.peers.varlen", "eager"),
        "padded: matmul + mask + softmax + matmul, every score in memory; the result stays padded",
    ),
    "sdpa": Peer(
        late("attention.peers.varlen", "by_sdpa", None),
        "padded: scaled_dot_product_attention with the padding as a mask, backend chosen by PyTorch",
    ),
    "sdpa_flash": Peer(
        late("attention.peers.varlen", "by_sdpa", "FLASH_ATTENTION"),
        "padded: SDPA's FlashAttention; causal or equal lengths only, no window",
        ("cuda",),
    ),
    "sdpa_efficient": Peer(
        late("attention.peers.varlen", "by_sdpa", "EFFICIENT_ATTENTION"),
        "padded: SDPA's memory-efficient kernel, padding mask",
        ("cuda",),
    ),
    "sdpa_cudnn": Peer(
        late("attention.peers.varlen", "by_sdpa", "CUDNN_ATTENTION"),
        "padded: SDPA through cuDNN, padding mask",
        ("cuda",),
    ),
    "sdpa_nested": Peer(
        late("attention.peers.varlen", "nested"), "packed: SDPA on jagged nested tensors, no window"
    ),
    "flash_varlen": Peer(
        late("attention.peers.varlen", "flash_varlen"),
        "packed: torch.nn.attention.varlen, FlashAttention with cu_seqlens",
        ("cuda",),
    ),
    "flex": Peer(
        late("attention.peers.varlen", "flex"),
        "packed: FlexAttention, compiled, a BlockMask of the documents",
        compiles={"cpu": 5.0, "cuda": 2.0},
    ),
}
