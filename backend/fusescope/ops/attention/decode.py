"""attention_decode(): one new query a sequence over a padded KV cache, checked, a kernel chosen, called."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.dispatch.dispatch import REFUSALS, Dispatch, empty_like, is_refusal

_INT_RANGE = 1 << 30
_dispatch = Dispatch("attention_decode")


def attention_decode(q, k_cache, v_cache, lengths, *, scale=None, impl="auto", check=None):
    """softmax(scale q kᵀ) v over the first lengths[b] keys of each sequence: contiguous (B, H, 1, D) of q's
    dtype.

    q: (B, H, 1, D); k_cache, v_cache: (B, H_kv, S_max, D) with H a multiple of H_kv (query head h reads KV
    head h // (H / H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples
    of 8 from 32 to 256. lengths: int32 (B,), contiguous, on q's device. It is read there, by the kernel:
    nothing waits for it, and a captured graph follows its values. What is in the cache from lengths[b] on
    is never read; a length of 0 gives zeros. check: whether lengths are checked to lie in 0 … S_max first,
    which waits for a GPU; None: on a CPU. Unchecked, one outside is taken as the nearer bound. scale:
    1/sqrt(D) where None. impl: a kernel of cuda/attention_decode, or "auto" (see ``choose``).

    The same lengths on the same device give the same bits. Raises TypeError and ValueError for arguments that
    break a rule, and Unsupported for what the kernel does not take.
    """
    if _dispatch.operator is not None and not _dispatch.is_compiling() and not _dispatch.modes():
        try:
            if scale is not None:
                scale = float(scale)
            if (
                impl in _dispatch.unmasked
                and (check is False or _within(k_cache, lengths, check))
                and not q.is_meta
                and not (
                    _dispatch.is_grad_enabled()
                    and (q.requires_grad or k_cache.requires_grad or v_cache.requires_grad)
                )
            ):
                return _dispatch.operator(q, k_cache, v_cache, lengths, scale, impl)
        except REFUSALS as error:
            _check(q, k_cache, v_cache, lengths, scale, impl)
            if not is_refusal(error):
                raise
    return _first_call(q, k_cache, v_cache, lengths, scale, impl, check)


def _within(k_cache, lengths, check) -> bool:
    """Whether a remembered call may go on: its lengths lie within the cache, or need not be read."""
    if check is not None or not lengths.is_cpu:
        return check is None
    return checks.within(lengths, k_cache.shape[2])


def _first_call(q, k_cache, v_cache, lengths, scale, impl, check):
    """The call with every check; remembered if it goes well."""
    import torch

    _check(q, k_cache, v_cache, lengths, scale, impl)
    if checks.are_read(torch, check, lengths):
        checks.cache_lengths(lengths, k_cache.shape[2])
    scale = None if scale is None else float(scale)
    chosen = choose(q) if impl == "auto" else impl
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention_decode")
        return torch.ops.fusescope.attention_decode.default(q, k_cache, v_cache, lengths, scale, chosen)
    out = _dispatch.call(q, k_cache, v_cache, lengths, scale, impl=impl, chosen=chosen)
    _dispatch.remember(None, impl, ())
    return out


def choose(q) -> str:
    """The kernel that "auto" stands for: the last one for this GPU that takes the dtype."""
    if q.device.type == "cpu":
        return "cpu"
    return tracing.last_that_takes("attention_decode", q.device.index, q.dtype, int(q.shape[3]), False, True)


def _fake(q, k_cache, v_cache, lengths, scale, impl):
    return empty_like(q, k_cache, v_cache, lengths)


register_fakes({"attention_decode": _fake})


def _check(q, k, v, lengths, scale, impl) -> None:
    import torch

    checks.are_tensors(torch, q=q, k_cache=k, v_cache=v, lengths=lengths)
    if q.dim() != 4 or q.shape[2] != 1:
        raise ValueError(f"q is (B, H, 1, D), one new query a sequence; its shape is {tuple(q.shape)}")
    if k.dim() != 4 or k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            "k_cache and v_cache have one shape (B, H_kv, S_max, D) with q's batch and head size; q "
            "and the caches are "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    checks.one_dtype(torch, q=q, k_cache=k, v_cache=v)
    if lengths.dtype != torch.int32:
        raise TypeError(f"lengths is of int32, not {lengths.dtype}")
    if lengths.dim() != 1 or lengths.shape[0] != q.shape[0] or not lengths.is_contiguous():
        raise ValueError(
            f"lengths is contiguous, one number for each of the {q.shape[0]} sequences; its shape is "
            f"{tuple(lengths.shape)}"
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
    checks.scale(scale)
    checks.implementation(impl)
