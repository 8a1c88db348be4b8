"""attention_varlen(): packed sequences, checked, a kernel chosen, called."""

from __future__ import annotations

from functools import cache

from backend.core.errors import Unsupported
from backend.kernels import register_fakes
from backend.ops.attention.known import KnownCalls, like_of

_INT_RANGE = 1 << 30
_calls = KnownCalls()


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, *, causal=False, scale=None, impl="auto"):
    """softmax(scale q kᵀ) v inside each of several sequences that lie packed: contiguous (T_q, H, D) of q's dtype.

    q: (T_q, H, D); k, v: (T_k, H_kv, D) with H a multiple of H_kv (query head h reads KV head h // (H / H_kv)); float32, float16 or
    bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to 256.
    cu_seqlens_q, cu_seqlens_k: int32 (batch + 1,), contiguous, on q's device, rising from 0; sequence b has the rows
    cu_seqlens[b] … cu_seqlens[b + 1] − 1, which may be none. They are read there, by the kernel: nothing waits for them, and a captured
    graph follows their values. (So they are not checked; values that break the rule give wrong results, but no access outside.)
    causal: query i of a sequence of n queries and m keys sees its keys j ≤ i + m − n (aligned at the end). Rows that see no key, and
    rows after the last sequence, are zeros. scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention_varlen, or "auto".

    Raises TypeError and ValueError for arguments that break a rule, and Unsupported for what the kernel does not take.
    """
    import torch

    tracing = torch.compiler.is_compiling()
    like = None if tracing else like_of((q, k, v, cu_seqlens_q, cu_seqlens_k), causal, scale, impl, torch.is_grad_enabled())
    if (known := _calls.get(like)) is not None:
        return known[0](q, k, v, cu_seqlens_q, cu_seqlens_k, *known[1])
    _check(torch, q, k, v, cu_seqlens_q, cu_seqlens_k, causal)
    scale = q.shape[2] ** -0.5 if scale is None else float(scale)
    if impl == "auto":
        impl = choose(q, k, v, scale)
    args = (q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale)
    if tracing:
        _while_tracing(q.device.type)
        return torch.ops.fusescope.attention_varlen.default(*args, impl)
    from backend import kernels

    out = kernels.call("attention_varlen", *args, impl=impl)
    _calls.keep(like, torch.ops.fusescope.attention_varlen.default, (causal, scale, impl))
    return out


def choose(q, k, v, scale: float = 1.0) -> str:
    """The kernel that "auto" stands for: by dtype, compute capability, and whether TMA can address q, k and v."""
    if q.device.type == "cpu":
        return "cpu"
    capability = _capability(q.device.index)
    if q.element_size() == 4 or capability < (8, 0):
        return "v1_rowwise"
    tma = capability == (9, 0) and scale > 0 and k.shape[0] > 0 and _tma_takes(q) and _tma_takes(k) and _tma_takes(v)
    return "v3_hopper" if tma else "v2_blockwise"


def _tma_takes(t) -> bool:
    """Whether address and strides of a 16-bit tensor are multiples of 16 bytes, columns side by side. The address by its offset,
    which torch.compile does not trace: torch's own storages begin at multiples of 256 bytes."""
    import torch

    size, stride = t.shape, t.stride()
    return (
        stride[2] == 1
        and (torch.compiler.is_compiling() or t.storage_offset() % 8 == 0)
        and all(n == 1 or (s > 0 and s % 8 == 0) for n, s in zip(size[:2], stride[:2]))
    )


@cache
def _capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)


def _while_tracing(device_type: str) -> bool:
    """Loads the library so that the operator exists when torch.compile looks it up."""
    from backend import kernels

    kernels.load(device_type)
    return True


_while_tracing._dynamo_marked_constant = True  # run while tracing, not put into the graph


def _fake(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl):
    return q.new_empty(q.shape)


register_fakes({"attention_varlen": _fake})


def _check(torch, q, k, v, cu_q, cu_k, causal) -> None:
    for name, t in (("q", q), ("k", k), ("v", v), ("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a tensor, not {type(t).__name__}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal is True or False, not {causal!r}")
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or k.shape[2] != q.shape[2]:
        raise ValueError(f"q is (T_q, H, D) and k, v are both (T_k, H_kv, D) with q's head size; q, k, v are {shapes}")
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Unsupported(f"dtype {q.dtype}; float32, float16 and bfloat16 are supported")
    for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if cu.dtype != torch.int32:
            raise TypeError(f"{name} is of int32, not {cu.dtype}")
        if cu.dim() != 1 or cu.shape[0] < 2 or not cu.is_contiguous():
            raise ValueError(
                f"{name} is contiguous, (batch + 1,) numbers for at least one sequence; its shape is {tuple(cu.shape)}"
            )
    if cu_q.shape != cu_k.shape:
        raise ValueError(f"cu_seqlens_q and cu_seqlens_k have one length, not {cu_q.shape[0]} and {cu_k.shape[0]}")
    if not (q.device == k.device == v.device == cu_q.device == cu_k.device):
        raise ValueError(f"all tensors lie on one device, not on {', '.join(str(t.device) for t in (q, k, v, cu_q, cu_k))}")
    if q.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"device {q.device}; cpu and cuda are supported")
    if 0 in (q.shape[1], k.shape[1]):
        raise ValueError(f"there is at least one head; q, k, v are {shapes}")
    if q.shape[0] >= _INT_RANGE or k.shape[0] >= _INT_RANGE:
        raise Unsupported(f"{max(q.shape[0], k.shape[0])} packed rows; fewer than 2^30 are supported")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the number of query heads is a multiple of that of KV heads; {q.shape[1]} is not one of {k.shape[1]}")
    d = q.shape[2]
    if d % 8 or not 32 <= d <= 256:
        raise Unsupported(
            f"head size {d}; multiples of 8 from 32 to 256 are supported, because rows are read 8 elements at a time"
        )
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise Unsupported("attention_varlen is forward only, but an input requires a gradient; call it under torch.no_grad()")
