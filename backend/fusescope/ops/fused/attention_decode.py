"""Attention of one to eight new queries a sequence over a padded or paged KV cache (decoding), bound by
memory: its inputs, its specification and its peers."""

from __future__ import annotations

from fusescope.ops.attention.decode import attention_decode, choose
from fusescope.ops.attention.describe.cases import DTYPES, TOLERANCE
from fusescope.ops.attention.describe.decode import PARAMETERS, cost, lengths, slopes, tolerance, validate
from fusescope.ops.base import Peer
from fusescope.ops.common.peers import late
from fusescope.ops.common.tensors import generator_for, random_tensor
from fusescope.ops.fp8 import MOST, largest, taken, to_fp8

__all__ = ["DTYPES", "PARAMETERS", "TOLERANCE", "attention_decode", "cost", "tolerance", "validate"]

NAME = "attention_decode"
TITLE = "Attention, decoding"
SUMMARY = (
    "out = softmax(q kᵀ / √D) v over the first lengths[b] keys of a padded or paged cache, for one to eight "
    "new queries a sequence."
)
FAMILY = "attention_decode"


def inputs(values, dtype, device, seed, contiguous=True):
    """q (B, H, T, D), k and v (B, H_kv, S_max, D), lengths int32 (B,), and of the options those that the case
    has: block_table int32 (B, S_max / page) with k and v (B · S_max / page, H_kv, page, D), window, softcap,
    sinks and alibi_slopes (H,), bias (1, H, T, S_max), k_scale and v_scale (H_kv,) with k and v of e4m3.
    contiguous=False: the dimensions 1 and 2 of a cache turned in memory, from an odd address on, and q and
    the bias with their columns apart."""
    import torch

    g = generator_for(device, seed)
    b, h, kv, s, d = (values[n] for n in ("batch", "heads", "kv_heads", "seq_max", "head_dim"))
    q = random_tensor((b, h, values.get("tokens", 1), d), dtype, device, g, contiguous)
    page = int(values.get("page", s))
    k, v = (random_tensor((b * s // page, kv, page, d), dtype, device, g) for _ in "kv")
    scales = {}
    if "kv_dtype" in values:
        scales = {f"{name}_scale": largest(t) / MOST for name, t in (("k", k), ("v", v))}
        k, v = (to_fp8(t, scale) for t, scale in zip((k, v), scales.values()))
    if not contiguous:
        k, v = _turned(k), _turned(v)
    counts = torch.tensor(lengths(values), dtype=torch.int32, device=device)
    found = {"q": q, "k": k, "v": v, "lengths": counts} | scales
    if "page" in values:
        order = torch.randperm(b * s // page, generator=g, device=device)
        found["block_table"] = order.to(torch.int32).view(b, s // page)
    if "sinks" in values:
        found["sinks"] = torch.randn(h, generator=g, device=device)
    if "alibi" in values:
        found["alibi_slopes"] = torch.tensor(slopes(h), device=device)
    if "bias" in values:
        found["bias"] = random_tensor((1, h, q.shape[2], s), dtype, device, g, contiguous)
    return found | {name: values[name] for name in ("window", "softcap") if name in values}


def _turned(cache):
    """The same values with the heads of a key side by side, in a storage that starts one element late."""
    b, kv, s, d = cache.shape
    view = cache.new_empty(cache.numel() + 1)[1:].view(b, s, kv, d).transpose(1, 2)
    view.copy_(cache)
    return view


_OPTIONS = ("block_table", "window", "softcap", "sinks", "k_scale", "v_scale", "alibi_slopes", "bias")


def arguments(inputs):
    options = {name: inputs[name] for name in _OPTIONS if name in inputs}
    return (inputs["q"], inputs["k"], inputs["v"], inputs["lengths"]), options


def call(inputs, impl):
    given, options = arguments(inputs)
    return attention_decode(*given, impl=impl, **options)


def auto(inputs):
    general = inputs["q"].shape[2] > 1 or any(name in inputs for name in _OPTIONS)
    biased = "alibi_slopes" in inputs or "bias" in inputs
    return choose(inputs["q"], general, "k_scale" in inputs, biased)


def reference(inputs):
    """The specification in float64, sequence by sequence; (B, H, T, D). A token without a key is zeros."""
    import torch

    q, cap, window = inputs["q"], inputs.get("softcap"), inputs.get("window")
    b, h, tokens, d = q.shape
    kv = inputs["k"].shape[1]
    out = torch.zeros(b, h, tokens, d, dtype=torch.float64, device=q.device)
    for i, n in enumerate(inputs["lengths"].tolist()):
        if not n:
            continue
        k, v = (_of_sequence(inputs, name, i, n) for name in "kv")
        rows = q[i].double().view(kv, h // kv * tokens, d)
        scores = (rows @ k.transpose(1, 2) * d**-0.5).view(h, tokens, n)
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        key, own = torch.arange(n, device=q.device), torch.arange(n - tokens, n, device=q.device)[:, None]
        if "alibi_slopes" in inputs:
            scores = scores + inputs["alibi_slopes"].double()[:, None, None] * (key - own)
        if "bias" in inputs:
            scores = scores + inputs["bias"][0, :, :, :n].double()
        sees = key <= own if window is None else (key <= own) & (key > own - window)
        scores = scores.masked_fill(~sees, -torch.inf)
        if "sinks" in inputs:
            scores = torch.cat([scores, inputs["sinks"].double()[:, None, None].expand(h, tokens, 1)], 2)
        weights = torch.softmax(scores, -1)[..., :n].masked_fill(~sees.any(1)[:, None], 0)
        out[i] = (weights.view(kv, -1, n) @ v).view(h, tokens, d)
    return out


def _of_sequence(inputs, name: str, i: int, n: int):
    """The first n keys, or values, of a sequence in float64, (H_kv, n, D)."""
    if "block_table" not in inputs:
        found = inputs[name][i, :, :n].double()
    else:
        pages = taken(inputs[name], inputs["block_table"][i].long()).transpose(0, 1)
        found = pages.flatten(1, 2)[:, :n].double()  # of (H_kv, pages, page, D)
    scale = inputs.get(f"{name}_scale")
    return found if scale is None else found * scale.double()[:, None, None]


def _flashinfer(idea: str, name: str, *args: bool) -> Peer:
    return Peer(
        late("attention.peers.flashinfer", name, *args),
        idea,
        ("cuda",),
        # half a minute once per dtype, head size and kind of option, kept on disk
        compiles={"cuda": 2.0},
        package="flashinfer-python",
    )


PEERS = {
    "eager": Peer(
        late("attention.peers.decode", "eager"),
        "matmul + mask + softmax + matmul, the heads of a KV head as rows; pages are gathered and an "
        "fp8 cache is brought to q's dtype in the call, as in all peers",
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
    "flashinfer": _flashinfer(
        "FlashInfer's planned kernel on CUDA cores, cache read in place", "planned", False
    ),
    "flashinfer_tensor": _flashinfer("the same on tensor cores", "planned", True),
    "flashinfer_xqa": _flashinfer("FlashInfer's XQA kernel on tensor cores, without a plan", "xqa"),
}
