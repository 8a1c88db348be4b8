"""attention_decode(): one new query a sequence over a padded KV cache, checked, a kernel chosen, called."""

from __future__ import annotations

from functools import cache

from backend.core.errors import Unsupported
from backend.kernels import register_fakes
from backend.ops.attention.known import KnownCalls, like_of

_INT_RANGE = 1 << 30
_calls = KnownCalls()


def attention_decode(q, k_cache, v_cache, lengths, *, scale=None, impl="auto"):
    """softmax(scale q kᵀ) v over the first lengths[b] keys of each sequence: contiguous (B, H, 1, D) of q's dtype.

    q: (B, H, 1, D); k_cache, v_cache: (B, H_kv, S_max, D) with H a multiple of H_kv (query head h reads KV head h // (H / H_kv));
    float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to 256.
    lengths: int32 (B,), contiguous, on q's device. It is read there, by the kernel: nothing waits for it, and a captured graph follows
    its values. What lies in the cache from lengths[b] on is never read; a length of 0 gives zeros; one outside 0 … S_max is taken
    as the nearer bound. scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention_decode, or "auto" (see ``choose``).

    The same lengths on the same device give the same bits. Raises TypeError and ValueError for arguments that break a rule, and
    Unsupported for what the kernel does not take.
    """
    import torch

    tracing = torch.compiler.is_compiling()
    like = None if tracing else like_of((q, k_cache, v_cache, lengths), scale, impl, torch.is_grad_enabled())
    if (known := _calls.get(like)) is not None:
        return known[0](q, k_cache, v_cache, lengths, *known[1])
    _check(torch, q, k_cache, v_cache, lengths)
    scale = q.shape[3] ** -0.5 if scale is None else float(scale)
    if impl == "auto":
        impl = choose(q)
    if tracing:
        _while_tracing(q.device.type)
        return torch.ops.fusescope.attention_decode.default(q, k_cache, v_cache, lengths, scale, impl)
    from backend import kernels

    out = kernels.call("attention_decode", q, k_cache, v_cache, lengths, scale, impl=impl)
    _calls.keep(like, torch.ops.fusescope.attention_decode.default, (scale, impl))
    return out


def choose(q) -> str:
    """The kernel that "auto" stands for: "cpu", "v2_tensor_core" for 16-bit types from compute capability 8.0 on, else "v1_warp_keys"."""
    if q.device.type == "cpu":
        return "cpu"
    return "v1_warp_keys" if q.element_size() == 4 or _capability(q.device.index) < (8, 0) else "v2_tensor_core"


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


def _fake(q, k_cache, v_cache, lengths, scale, impl):
    return q.new_empty(q.shape)


register_fakes({"attention_decode": _fake})


def _check(torch, q, k, v, lengths) -> None:
    for name, t in (("q", q), ("k_cache", k), ("v_cache", v), ("lengths", lengths)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a tensor, not {type(t).__name__}")
    if q.dim() != 4 or q.shape[2] != 1:
        raise ValueError(f"q is (B, H, 1, D), one new query a sequence; its shape is {tuple(q.shape)}")
    if k.dim() != 4 or k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"k_cache and v_cache have one shape (B, H_kv, S_max, D) with q's batch and head size; q and the caches are "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k_cache and v_cache have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Unsupported(f"dtype {q.dtype}; float32, float16 and bfloat16 are supported")
    if lengths.dtype != torch.int32:
        raise TypeError(f"lengths is of int32, not {lengths.dtype}")
    if lengths.dim() != 1 or lengths.shape[0] != q.shape[0] or not lengths.is_contiguous():
        raise ValueError(
            f"lengths is contiguous, one number for each of the {q.shape[0]} sequences; its shape is {tuple(lengths.shape)}"
        )
    if not (q.device == k.device == v.device == lengths.device):
        raise ValueError(f"all tensors lie on one device, not on {q.device}, {k.device}, {v.device} and {lengths.device}")
    if q.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"device {q.device}; cpu and cuda are supported")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"every size is at least 1; q and the caches are {tuple(q.shape)} and {tuple(k.shape)}")
    if k.shape[2] >= _INT_RANGE:
        raise Unsupported(f"a cache of {k.shape[2]} keys; fewer than 2^30 are supported")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the number of query heads is a multiple of that of KV heads; {q.shape[1]} is not one of {k.shape[1]}")
    d = q.shape[3]
    if d % 8 or not 32 <= d <= 256:
        raise Unsupported(
            f"head size {d}; multiples of 8 from 32 to 256 are supported, because rows are read 8 elements at a time"
        )
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise Unsupported("attention_decode is forward only, but an input requires a gradient; call it under torch.no_grad()")
