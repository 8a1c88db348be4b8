"""attention(): checks what was given, finds or builds the plan, chooses a kernel and calls it."""

from __future__ import annotations

from functools import cache

from backend.core.errors import Unsupported
from backend.masks import Mask
from backend.ops.attention.plan import Plan, prepare, prepared

_SUPPORTED_DIMS = "multiples of 8 from 32 to 256"
# Live keys a row up to which walking them one by one beats whole tiles. On an H200 at (16, 12, 2048, 64) in fp16 a live key costs
# v1 some 16 us over all rows and one tile a row costs v3 some 25 us (recorded run 20261120-113445-bench-3a2c37).
_SPARSE_KEYS = 2
_FEW_ROWS = 16  # query rows below which most of a 64-row tile would be idle


def attention(q, k, v, mask=None, *, bias=None, scale=None, impl="auto"):
    """softmax(scale q kᵀ + bias, where the mask keeps) v: contiguous (B, H, S_q, D) of q's dtype; rows without a live key are zeros.

    q: (B, H, S_q, D); k, v: (B, H_kv, S_k, D) with H a multiple of H_kv (query head h reads KV head h // (H / H_kv)); float32,
    float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to 256. Where S_q ≠ S_k query row i
    stands at position i + S_k − S_q.
    mask: a Mask (its plan is built on first use and cached), a Plan from ``prepare``, or a bool tensor broadcastable to
    (B, H, S_q, S_k), True = keep (a plan is built at every call: prepare it to keep it). None: every key.
    bias: tensor of q's dtype or float32, broadcastable likewise, added to the scaled scores. scale: 1/sqrt(D) where None.
    impl: a kernel of cuda/attention, or "auto" (see ``choose``).

    Raises TypeError and ValueError for arguments that break a rule, Unsupported for what the kernel does not take, and
    RuntimeError for an unprepared mask under CUDA graph capture or torch.compile.
    """
    import torch

    _check(torch, q, k, v)
    plan = mask if isinstance(mask, Plan) else _plan(torch, mask, q, k)
    if plan is not None:
        _check_plan(plan, q, k)
    if bias is not None:
        bias = _bias(torch, bias, q, k)
    if scale is None:
        scale = q.shape[3] ** -0.5
    if impl == "auto":
        impl = choose(q, k, v, plan)
    if plan is None:
        args = (q, k, v, bias, None, None, None, None, 0, 0, float(scale))
    else:
        lists = (plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps)
        args = (q, k, v, bias, *lists, plan.stride_b, plan.stride_h, float(scale))
    if torch.compiler.is_compiling():
        _while_tracing(q.device.type)
        return torch.ops.fusescope.attention.default(*args, impl)
    from backend import kernels

    return kernels.call("attention", *args, impl=impl)


def choose(q, k, v, plan: Plan | None) -> str:
    """The kernel that "auto" stands for, from shape, strides, mask, dtype and device: "cpu", "v1_rowwise", "v2_blockwise" or "v3_hopper".

    The row-wise kernel works on live keys, the others on whole tiles with tensor cores: the first is taken for float32, below
    compute capability 8.0, and where a row has few live keys on average or there are few rows. v3 is for compute capability 9.0
    and for what TMA can address.
    """
    if q.device.type == "cpu":
        return "cpu"
    capability = _capability(q.device.index)
    if q.element_size() == 4 or capability < (8, 0):
        return "v1_rowwise"
    live = k.shape[2] if plan is None else plan.live_keys
    if live <= _SPARSE_KEYS or q.shape[2] < _FEW_ROWS:
        return "v1_rowwise"
    return "v3_hopper" if capability == (9, 0) and _tma_takes(q) and _tma_takes(k) and _tma_takes(v) else "v2_blockwise"


def _tma_takes(t) -> bool:
    """Whether address and strides are what TMA wants of a 16-bit tensor: multiples of 16 bytes, columns side by side.

    The address by its offset, which torch.compile knows too: torch's own storages begin at multiples of 256 bytes.
    """
    size, stride = t.shape, t.stride()
    return (
        stride[3] == 1
        and t.storage_offset() % 8 == 0
        and all(n == 1 or (s > 0 and s % 8 == 0) for n, s in zip(size[:3], stride[:3]))
    )


def fake(q, k, v, bias, row_ptr, tile_index, tile_code, bitmaps, mask_stride_b, mask_stride_h, scale, impl):
    """The shape-only kernel: what torch.compile and opcheck learn of the operator."""
    return q.new_empty(q.shape)


@cache
def _capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)


def _while_tracing(device_type: str) -> bool:
    """Loads the library so that the operator exists when torch.compile looks it up."""
    from backend import kernels

    kernels.load(device_type)
    return True


def _refuse_while_tracing() -> bool:
    raise RuntimeError("under torch.compile a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made outside")


# What torch.compiler.assume_constant_result does, without importing torch here: run while tracing, not put into the graph. An
# exception in such a function ends the compilation, where one raised in traced code would only be a graph break and then no error.
_while_tracing._dynamo_marked_constant = True
_refuse_while_tracing._dynamo_marked_constant = True


def _check(torch, q, k, v) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a tensor, not {type(t).__name__}")
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ValueError(f"q is (B, H, S_q, D) and k, v are (B, H_kv, S_k, D); their shapes are {_shapes(q, k, v)}")
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"k and v have one shape (B, H_kv, S_k, D) with q's batch and head size; q, k, v are {_shapes(q, k, v)} "
            "(a head size of v that differs from that of k is not supported)"
        )
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Unsupported(f"dtype {q.dtype}; float32, float16 and bfloat16 are supported")
    if not (q.device == k.device == v.device):
        raise ValueError(f"q, k and v lie on one device, not on {q.device}, {k.device} and {v.device}")
    if q.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"device {q.device}; cpu and cuda are supported")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"every size is at least 1; q, k, v are {_shapes(q, k, v)}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the number of query heads is a multiple of that of KV heads; {q.shape[1]} is not one of {k.shape[1]}")
    d = q.shape[3]
    if d % 8 or not 32 <= d <= 256:
        raise Unsupported(f"head size {d}; {_SUPPORTED_DIMS} are supported, because rows are read 8 elements at a time")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise Unsupported("attention is forward only, but an input requires a gradient; call it under torch.no_grad()")


def _plan(torch, mask, q, k) -> Plan | None:
    """The plan for what was given as a mask; None = every key."""
    if mask is None:
        return None
    seq_q, seq_k, device = q.shape[2], k.shape[2], q.device
    if torch.compiler.is_compiling():
        _refuse_while_tracing()
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        found = prepared(mask, seq_q, seq_k, device) if isinstance(mask, Mask) else None
        if found is None:
            raise RuntimeError(
                "under CUDA graph capture a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made before"
            )
        return found
    if isinstance(mask, Mask) and mask.sequences not in (None, q.shape[0]):
        raise ValueError(f"mask {mask} is written for {mask.sequences} sequences, the batch is {q.shape[0]}")
    if isinstance(mask, torch.Tensor):
        _check_broadcast("a mask tensor", mask, q, k)
    return prepare(mask, seq_q, seq_k, device)


def _check_plan(plan: Plan, q, k) -> None:
    if plan.seq_q != q.shape[2] or plan.seq_k != k.shape[2]:
        raise ValueError(
            f"the plan is for {plan.seq_q} queries and {plan.seq_k} keys; this call has {q.shape[2]} and {k.shape[2]}"
        )
    if plan.batch not in (1, q.shape[0]) or plan.heads not in (1, q.shape[1]):
        raise ValueError(
            f"the plan holds masks for {plan.batch} batch entries and {plan.heads} heads; this call has {q.shape[0]} and {q.shape[1]}"
        )
    if plan.device != q.device:
        raise ValueError(f"the plan was prepared for {plan.device}; q is on {q.device}")


def _bias(torch, bias, q, k):
    """bias with four dimensions; broadcast ones stay of size 1."""
    if not isinstance(bias, torch.Tensor):
        raise TypeError(f"bias is a tensor added to the scores, not {type(bias).__name__}")
    if bias.dtype not in (q.dtype, torch.float32):
        hint = "; a bool mask goes to mask=" if bias.dtype == torch.bool else ""
        raise TypeError(f"bias is of q's dtype {q.dtype} or torch.float32, not {bias.dtype}{hint}")
    if bias.device != q.device:
        raise ValueError(f"bias lies on q's device {q.device}, not on {bias.device}")
    _check_broadcast("bias", bias, q, k)
    if torch.is_grad_enabled() and bias.requires_grad:
        raise Unsupported("attention is forward only, but bias requires a gradient; call it under torch.no_grad()")
    return bias.reshape((1,) * (4 - bias.dim()) + tuple(bias.shape))


def _check_broadcast(what: str, t, q, k) -> None:
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if t.dim() > 4 or any(have not in (1, want) for have, want in zip(reversed(t.shape), reversed(full))):
        raise ValueError(f"{what} is broadcastable to (B, H, S_q, S_k) = {full}; its shape is {tuple(t.shape)}")


def _shapes(*tensors) -> str:
    return ", ".join(str(tuple(t.shape)) for t in tensors)
