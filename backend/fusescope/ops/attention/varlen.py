"""attention_varlen(): packed sequences, checked, a kernel chosen, called."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import checks
from fusescope.ops.attention.dispatch.choice import capability, tma_takes
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


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=False, scale=None, impl="auto"):
    """softmax(scale q kᵀ) v inside each of several sequences that lie packed: contiguous (T_q, H, D) of q's
    dtype.

    q: (T_q, H, D); k, v: (T_k, H_kv, D) with H a multiple of H_kv (query head h reads KV head h // (H /
    H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to
    256. cu_seqlens_q, cu_seqlens_k: int32 (batch + 1,), contiguous, on q's device, rising from 0; sequence b
    has the rows cu_seqlens[b] … cu_seqlens[b + 1] − 1, which may be none. They are read there, by the kernel:
    nothing waits for them, and a captured graph follows their values. (So they are not checked; values that
    break the rule give wrong results, but no access outside.) causal: query i of a sequence of n queries and
    m keys sees its keys j ≤ i + m − n (aligned at the end). Rows that see no key, and rows after the last
    sequence, are zeros. scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention_varlen, or "auto".

    Raises TypeError and ValueError for arguments that break a rule, and Unsupported for what the kernel does
    not take.
    """
    if (way := _short.get(impl)) is not None and not way.is_compiling() and not way.modes():
        try:
            if (causal is True or causal is False) and not (
                way.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
            ):
                out = way.operator(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl)
                if not out.is_meta:  # those have shapes only, and are refused
                    return out
        except REFUSALS:
            pass
    return _long(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl)


def _long(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl):
    """The call with every check."""
    import torch

    _check(torch, q, k, v, cu_seqlens_q, cu_seqlens_k, causal)
    scale = None if scale is None else float(scale)
    chosen = choose(q, k, v, 1.0 if scale is None else scale) if impl == "auto" else impl
    args = (q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale)
    if torch.compiler.is_compiling():
        while_tracing(q.device.type)
        return torch.ops.fusescope.attention_varlen.default(*args, chosen)
    from fusescope import kernels

    out = kernels.call("attention_varlen", *args, impl=asked(impl, chosen))
    if q.shape[0] and impl not in _short:  # without rows no implementation was asked
        _short[impl] = short("attention_varlen")
    return out


def choose(q, k, v, scale: float = 1.0) -> str:
    """The kernel that "auto" stands for: by dtype, compute capability, and whether TMA can address q, k and
    v."""
    if q.device.type == "cpu":
        return "cpu"
    level = capability(q.device.index)
    if q.element_size() == 4 or level < (8, 0):
        return "v1_rowwise"
    tma = level == (9, 0) and scale > 0 and k.shape[0] > 0 and tma_takes(q) and tma_takes(k) and tma_takes(v)
    return "v3_hopper" if tma else "v2_blockwise"


def _fake(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl):
    return empty_like(q, k, v, cu_seqlens_q, cu_seqlens_k)


register_fakes({"attention_varlen": _fake})


def _check(torch, q, k, v, cu_q, cu_k, causal) -> None:
    checks.are_tensors(torch, q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    if not isinstance(causal, bool):
        raise TypeError(f"causal is True or False, not {causal!r}")
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or k.shape[2] != q.shape[2]:
        raise ValueError(
            f"q is (T_q, H, D) and k, v are both (T_k, H_kv, D) with q's head size; q, k, v are {checks.shapes(q, k, v)}"
        )
    checks.one_dtype(torch, q=q, k=k, v=v)
    for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if cu.dtype != torch.int32:
            raise TypeError(f"{name} is of int32, not {cu.dtype}")
        if cu.dim() != 1 or cu.shape[0] < 2 or not cu.is_contiguous():
            raise ValueError(
                f"{name} is contiguous, (batch + 1,) numbers for at least one sequence; its shape is {tuple(cu.shape)}"
            )
    if cu_q.shape != cu_k.shape:
        raise ValueError(
            f"cu_seqlens_q and cu_seqlens_k have one length, not {cu_q.shape[0]} and {cu_k.shape[0]}"
        )
    checks.one_device("all tensors", q, k, v, cu_q, cu_k, last=", ")
    if 0 in (q.shape[1], k.shape[1]):
        raise ValueError(f"there is at least one head; q, k, v are {checks.shapes(q, k, v)}")
    if q.shape[0] >= _INT_RANGE or k.shape[0] >= _INT_RANGE:
        raise Unsupported(f"{max(q.shape[0], k.shape[0])} packed rows; fewer than 2^30 are supported")
    checks.heads_and_head_size(q.shape[1], k.shape[1], q.shape[2])
    checks.no_gradient(torch, "attention_varlen", q, k, v)
