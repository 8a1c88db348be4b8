"""Attention of one new query a sequence over a padded KV cache (decoding), bound by memory: what a case is,
costs and competes with."""

from __future__ import annotations

from fusescope.core.schema import Parameter, size
from fusescope.ops.attention.decode import attention_decode, choose
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.attention.describe.cases import DTYPES, TOLERANCE, complete_heads
from fusescope.ops.base import Cost, Peer
from fusescope.ops.common.peers import late
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["DTYPES", "TOLERANCE", "attention_decode"]

NAME = "attention_decode"
TITLE = "Attention, decoding"
SUMMARY = (
    "out = softmax(q kᵀ / √D) v over the first lengths[b] keys of a padded cache, one new query a sequence."
)
FAMILY = "attention_decode"
_KEYS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
PARAMETERS = (
    size("batch", 16, "sequences", 1 << 16, (1, 4, 16, 32, 64, 128)),
    size("heads", 32, "query heads", 1 << 12, (8, 12, 16, 32, 64)),
    size(
        "kv_heads",
        None,
        "KV heads, a divisor of heads; as many as heads where left out",
        1 << 12,
        sweep=False,
    ),
    size("seq_max", 4096, "keys the cache has room for", 1 << 24, _KEYS),
    Parameter(
        "head_dim",
        "int",
        128,
        "head size, a multiple of 8",
        low=32,
        high=256,
        typical=(64, 96, 128, 256),
        sweep=True,
    ),
    Parameter("lengths", "text", "full", length_texts.HELP, typical=("full", "drawn")),
)


def validate(values):
    """The complete case, kv_heads filled in. ValueError for unknown keys, sizes out of bounds, and what does
    not fit together."""
    case = complete_heads(NAME, PARAMETERS, values)
    _lengths(case)
    return case


def _lengths(values) -> tuple[int, ...]:
    return length_texts.of(values["lengths"], values["batch"], values["seq_max"])


def tolerance(values, dtype):
    """It shrinks with the outputs, which average over the keys: the fewest of a sequence that has any
    count."""
    return length_texts.tolerance(min((n for n in _lengths(values) if n), default=1), dtype)


def inputs(values, dtype, device, seed, contiguous=True):
    """q (B, H, 1, D), k and v (B, H_kv, S_max, D), lengths int32 (B,). contiguous=False: caches as (B, S_max,
    H_kv, D) turned, from an odd address on, and q with its columns apart."""
    import torch

    g = generator_for(device, seed)
    b, h, kv, s, d = (values[n] for n in ("batch", "heads", "kv_heads", "seq_max", "head_dim"))
    q = random_tensor((b, h, 1, d), dtype, device, g, contiguous)
    k, v = (random_tensor((b, kv, s, d), dtype, device, g) for _ in "kv")
    if not contiguous:
        k, v = _turned(k), _turned(v)
    lengths = torch.tensor(_lengths(values), dtype=torch.int32, device=device)
    return {"q": q, "k": k, "v": v, "lengths": lengths}


def _turned(cache):
    """The same values with the heads of a key side by side, in a storage that starts one element late."""
    b, kv, s, d = cache.shape
    view = cache.new_empty(cache.numel() + 1)[1:].view(b, s, kv, d).transpose(1, 2)
    view.copy_(cache)
    return view


def arguments(inputs):
    return (inputs["q"], inputs["k"], inputs["v"], inputs["lengths"]), {}


def call(inputs, impl):
    return attention_decode(*arguments(inputs)[0], impl=impl)


def auto(inputs):
    return choose(inputs["q"])


def reference(inputs):
    """The specification in float64, sequence by sequence; (B, H, 1, D)."""
    import torch

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, h, _, d = q.shape
    kv = k.shape[1]
    out = torch.zeros(b, h, 1, d, dtype=torch.float64, device=q.device)
    for i, n in enumerate(inputs["lengths"].tolist()):
        if n:
            rows = q[i].double().view(kv, h // kv, d)
            weights = torch.softmax(rows @ k[i, :, :n].double().transpose(1, 2) * d**-0.5, -1)
            out[i] = (weights @ v[i, :, :n].double()).view(h, 1, d)
    return out


def cost(values, dtype):
    """Two products of 2·D operations per key and query head, executed for whole tiles of 64 keys; live keys,
    values and queries once."""
    size = 4 if dtype == "float32" else 2
    h, kv, d, lengths = values["heads"], values["kv_heads"], values["head_dim"], _lengths(values)
    live, executed = sum(lengths), sum(-(-n // 64) * 64 for n in lengths)
    q = size * d * values["batch"] * h
    notes = {"live_keys": live, "mean_length": live / len(lengths)}
    return Cost(4.0 * d * h * live, 4.0 * d * h * executed, q + 2 * size * d * kv * live, q, "matrix", notes)


PEERS = {
    "eager": Peer(
        late("attention.peers.decode", "eager"),
        "matmul + mask + softmax + matmul, the heads of a KV head as rows",
    ),
    "sdpa": Peer(
        late("attention.peers.decode", "by_sdpa", None, False),
        "scaled_dot_product_attention over the padded cache, backend chosen by PyTorch",
    ),
    "sdpa_grouped": Peer(
        late("attention.peers.decode", "by_sdpa", None, True),
        "the same with the heads of a KV head as rows, so that K and V are read once",
    ),
    "sdpa_flash": Peer(
        late("attention.peers.decode", "by_sdpa", "FLASH_ATTENTION", True),
        "SDPA's FlashAttention, heads as rows; equal lengths only",
        ("cuda",),
    ),
    "sdpa_efficient": Peer(
        late("attention.peers.decode", "by_sdpa", "EFFICIENT_ATTENTION", True),
        "SDPA's memory-efficient kernel, heads as rows",
        ("cuda",),
    ),
    "sdpa_cudnn": Peer(
        late("attention.peers.decode", "by_sdpa", "CUDNN_ATTENTION", False),
        "SDPA through cuDNN with grouped heads",
        ("cuda",),
    ),
    "flex": Peer(
        late("attention.peers.decode", "flex"),
        "FlexAttention's decoding kernel, compiled, a BlockMask of the lengths",
        compiles={"cpu": 5.0, "cuda": 2.0},
    ),
}
