"""Attention of one new query a sequence over a padded KV cache (decoding), bound by memory: what a case is,
costs and competes with."""

from __future__ import annotations

import warnings
from functools import partial

from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter
from fusescope.ops.attention.decode import attention_decode, choose
from fusescope.ops.attention.describe import lengths as length_texts
from fusescope.ops.attention.describe.cases import DTYPES, TOLERANCE, complete_heads
from fusescope.ops.base import Cost, Peer
from fusescope.ops.common.peers import plain
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
    Parameter(
        "batch", "int", 16, "sequences", low=1, high=1 << 16, typical=(1, 4, 16, 32, 64, 128), sweep=True
    ),
    Parameter(
        "heads", "int", 32, "query heads", low=1, high=1 << 12, typical=(8, 12, 16, 32, 64), sweep=True
    ),
    Parameter(
        "kv_heads",
        "int",
        None,
        "KV heads, a divisor of heads; as many as heads where left out",
        low=1,
        high=1 << 12,
    ),
    Parameter(
        "seq_max", "int", 4096, "keys the cache has room for", low=1, high=1 << 24, typical=_KEYS, sweep=True
    ),
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
    """Two products of 2·D operations a key and query head, executed for whole tiles of 64 keys; live keys,
    values and queries once."""
    size = 4 if dtype == "float32" else 2
    h, kv, d, lengths = values["heads"], values["kv_heads"], values["head_dim"], _lengths(values)
    live, executed = sum(lengths), sum(-(-n // 64) * 64 for n in lengths)
    q = size * d * values["batch"] * h
    notes = {"live_keys": live, "mean_length": live / len(lengths)}
    return Cost(4.0 * d * h * live, 4.0 * d * h * executed, q + 2 * size * d * kv * live, q, "matrix", notes)


def _mask(inputs):
    """(additive mask (B, 1, 1, S_max) or None where every key is live, empty sequences (B, 1, 1, 1) or
    None)."""
    import torch

    lengths, k = inputs["lengths"], inputs["k"]
    dead = torch.arange(k.shape[2], device=k.device) >= lengths[:, None]
    if not bool(dead.any()):
        return None, None
    mask = torch.zeros(dead.shape, dtype=k.dtype, device=k.device).masked_fill_(dead, float("-inf"))[
        :, None, None
    ]
    empty = (lengths == 0)[:, None, None, None]
    return mask, empty if bool(empty.any()) else None


def _grouped(inputs):
    """q as (B, H_kv, H / H_kv, D): the heads of a KV head as rows of one product."""
    q, kv = inputs["q"], inputs["k"].shape[1]
    return q.reshape(q.shape[0], kv, q.shape[1] // kv, q.shape[3])


def _finished(run, inputs, empty, backend=None):
    """run with its result as (B, H, 1, D), and zeros for the empty sequences, as their user would have to set
    them."""
    shape = inputs["q"].shape

    def whole():
        out = run().reshape(shape)
        return out if empty is None else out.masked_fill_(empty, 0)

    if backend:
        whole.backend = backend
    return whole


def _eager(inputs):
    import torch

    mask, empty = _mask(inputs)
    k, v, scale = inputs["k"], inputs["v"], inputs["q"].shape[3] ** -0.5

    def run():
        scores = (_grouped(inputs) @ k.transpose(2, 3)) * scale
        return torch.softmax(scores if mask is None else scores + mask, -1) @ v

    return _finished(plain(run), inputs, empty)


def _sdpa(backend, grouped, inputs):
    """SDPA over the padded cache with the lengths as a mask: heads as they are (enable_gqa), or those of a KV
    head as its rows."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mask, empty = _mask(inputs)
    k, v = inputs["k"], inputs["v"]
    gqa = not grouped and inputs["q"].shape[1] != k.shape[1]
    function = torch.nn.functional.scaled_dot_product_attention
    names = {int(b): n.lower() for n, b in SDPBackend.__members__.items()}

    def run():
        q = _grouped(inputs) if grouped else inputs["q"]
        return function(q, k, v, attn_mask=mask, enable_gqa=gqa)

    def taken():
        q = _grouped(inputs) if grouped else inputs["q"]
        return names.get(torch._fused_sdp_choice(q, k, v, mask, 0.0, False, enable_gqa=gqa), "unknown")

    if backend is None:
        chosen = taken()
        _refuse_odd(chosen, inputs)
        return _finished(run, inputs, empty, chosen)
    with warnings.catch_warnings(), sdpa_kernel(getattr(SDPBackend, backend)):
        warnings.simplefilter("ignore")
        try:
            chosen = taken()
        except RuntimeError as error:
            raise Unsupported(f"{backend.lower()} does not take this: {str(error).splitlines()[0]}") from None
    if chosen != backend.lower():
        raise Unsupported(f"{backend.lower()} does not take this: PyTorch would take {chosen}")
    _refuse_odd(chosen, inputs)

    def forced():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return run()

    return _finished(forced, inputs, empty, chosen)


def _refuse_odd(backend, inputs):
    """PyTorch hands any address to its fused CUDA kernels, which fault on one that is not a multiple of 16
    bytes."""
    if backend != "math" and any(inputs[n].is_cuda and inputs[n].data_ptr() % 16 for n in "qkv"):
        raise Unsupported(
            f"{backend} does not take this: it faults on an address that is not a multiple of 16 bytes"
        )


def _flex(inputs):
    """FlexAttention's decoding kernel, compiled, with a BlockMask of the lengths made outside the call."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, lengths = inputs["q"], inputs["k"], inputs["v"], inputs["lengths"]
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 4096)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 4096)
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    _, empty = _mask(inputs)
    try:
        block_mask = None
        if bool((lengths < k.shape[2]).any()):
            block_mask = create_block_mask(
                lambda b, h, i, j: j < lengths[b], q.shape[0], None, 1, k.shape[2], device=q.device
            )

        def run():
            return compiled(q, k, v, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])

        run()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the compiler's own exception classes are many and not public
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise Unsupported(
            f"FlexAttention does not take this: {lines[0] if lines else type(error).__name__}"
        ) from error
    return _finished(run, inputs, empty, "flex_attention (inductor)")


PEERS = {
    "eager": Peer(_eager, "matmul + mask + softmax + matmul, the heads of a KV head as rows"),
    "sdpa": Peer(
        partial(_sdpa, None, False),
        "scaled_dot_product_attention over the padded cache, backend chosen by PyTorch",
    ),
    "sdpa_grouped": Peer(
        partial(_sdpa, None, True),
        "the same with the heads of a KV head as rows, so that K and V are read once",
    ),
    "sdpa_flash": Peer(
        partial(_sdpa, "FLASH_ATTENTION", True),
        "SDPA's FlashAttention, heads as rows; equal lengths only",
        ("cuda",),
    ),
    "sdpa_efficient": Peer(
        partial(_sdpa, "EFFICIENT_ATTENTION", True),
        "SDPA's memory-efficient kernel, heads as rows",
        ("cuda",),
    ),
    "sdpa_cudnn": Peer(
        partial(_sdpa, "CUDNN_ATTENTION", False), "SDPA through cuDNN with grouped heads", ("cuda",)
    ),
    "flex": Peer(
        _flex,
        "FlexAttention's decoding kernel, compiled, a BlockMask of the lengths",
        compiles={"cpu": 5.0, "cuda": 2.0},
    ),
}
