"""attention_decode(): one new query a sequence over a padded KV cache, checked, a kernel chosen, called."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import checks
from fusescope.ops.attention.dispatch.choice import capability
from fusescope.ops.attention.dispatch.fast_path import (
    REFUSALS,
    Short,
    asked,
    empty_like,
    short,
    while_tracing,
)

_INT_RANGE = 1 << 30
_short: dict[str, Short] = {}  # of implementations asked for that went well before


def attention_decode(q, k_cache, v_cache, lengths, *, scale=None, impl="auto"):
    """softmax(scale q kᵀ) v over the first lengths[b] keys of each sequence: contiguous (B, H, 1, D) of q's
    dtype.

    q: (B, H, 1, D); k_cache, v_cache: (B, H_kv, S_max, D) with H a multiple of H_kv (query head h reads KV
    head h // (H / H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples
    of 8 from 32 to 256. lengths: int32 (B,), contiguous, on q's device. It is read there, by the kernel:
    nothing waits for it, and a captured graph follows its values. What lies in the cache from lengths[b] on
    is never read; a length of 0 gives zeros; one outside 0 … S_max is taken as the nearer bound. scale:
    1/sqrt(D) where None. impl: a kernel of cuda/attention_decode, or "auto" (see ``choose``).

    The same lengths on the same device give the same bits. Raises TypeError and ValueError for arguments that
    break a rule, and Unsupported for what the kernel does not take.
    """
    if (way := _short.get(impl)) is not None and not way.is_compiling() and not way.modes():
        try:
            if not (
                way.is_grad_enabled() and (q.requires_grad or k_cache.requires_grad or v_cache.requires_grad)
            ):
                out = way.operator(q, k_cache, v_cache, lengths, scale, impl)
                if not out.is_meta:  # those have shapes only, and are refused
                    return out
        except REFUSALS:
            pass
    return _long(q, k_cache, v_cache, lengths, scale, impl)


def _long(q, k_cache, v_cache, lengths, scale, impl):
    """The call with every check."""
    import torch

    _check(torch, q, k_cache, v_cache, lengths)
    scale = None if scale is None else float(scale)
    chosen = choose(q) if impl == "auto" else impl
    if torch.compiler.is_compiling():
        while_tracing(q.device.type)
        return torch.ops.fusescope.attention_decode.default(q, k_cache, v_cache, lengths, scale, chosen)
    from fusescope import kernels

    out = kernels.call("attention_decode", q, k_cache, v_cache, lengths, scale, impl=asked(impl, chosen))
    if impl not in _short:
        _short[impl] = short("attention_decode")
    return out


def choose(q) -> str:
    """The kernel that "auto" stands for: "cpu", "v2_tensor_core" for 16-bit types from compute capability 8.0
    on, else "v1_warp_keys"."""
    if q.device.type == "cpu":
        return "cpu"
    return (
        "v1_warp_keys" if q.element_size() == 4 or capability(q.device.index) < (8, 0) else "v2_tensor_core"
    )


def _fake(q, k_cache, v_cache, lengths, scale, impl):
    return empty_like(q, k_cache, v_cache, lengths)


register_fakes({"attention_decode": _fake})


def _check(torch, q, k, v, lengths) -> None:
    checks.are_tensors(torch, q=q, k_cache=k, v_cache=v, lengths=lengths)
    if q.dim() != 4 or q.shape[2] != 1:
        raise ValueError(f"q is (B, H, 1, D), one new query a sequence; its shape is {tuple(q.shape)}")
    if k.dim() != 4 or k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"k_cache and v_cache have one shape (B, H_kv, S_max, D) with q's batch and head size; q and the caches are "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    checks.one_dtype(torch, q=q, k_cache=k, v_cache=v)
    if lengths.dtype != torch.int32:
        raise TypeError(f"lengths is of int32, not {lengths.dtype}")
    if lengths.dim() != 1 or lengths.shape[0] != q.shape[0] or not lengths.is_contiguous():
        raise ValueError(
            f"lengths is contiguous, one number for each of the {q.shape[0]} sequences; its shape is {tuple(lengths.shape)}"
        )
    checks.one_device("all tensors", q, k, v, lengths)
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(
            f"every size is at least 1; q and the caches are {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if k.shape[2] >= _INT_RANGE:
        raise Unsupported(f"a cache of {k.shape[2]} keys; fewer than 2^30 are supported")
    checks.heads_and_head_size(q.shape[1], k.shape[1], q.shape[3])
    checks.no_gradient(torch, "attention_decode", q, k, v)
