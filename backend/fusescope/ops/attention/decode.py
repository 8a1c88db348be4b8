"""attention_decode(): one to eight new queries a sequence over a padded or paged KV cache, checked, a kernel
chosen, called."""

from __future__ import annotations

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.describe.decode import MOST_TOKENS
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.dispatch.dispatch import REFUSALS, Dispatch, empty_like, is_refusal

_INT_RANGE = 1 << 30
_NO_OPTIONS = (None,) * 8
_dispatch = Dispatch("attention_decode")


def attention_decode(
    q,
    k_cache,
    v_cache,
    lengths,
    *,
    scale=None,
    impl="auto",
    check=None,
    block_table=None,
    window=None,
    softcap=None,
    sinks=None,
    k_scale=None,
    v_scale=None,
    alibi_slopes=None,
    bias=None,
):
    """softmax(scale q kᵀ) v over the first lengths[b] keys of each sequence: contiguous (B, H, T, D) of q's
    dtype.

    q: (B, H, T, D), T from 1 to 8; k_cache, v_cache: (B, H_kv, S_max, D) with H a multiple of H_kv (query
    head h reads KV head h // (H / H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward
    only. D: multiples of 8 from 32 to 256. lengths: int32 (B,), contiguous, on q's device. It is read there,
    by the kernel: nothing waits for it, and a captured graph follows its values. What is in the cache from
    lengths[b] on is never read; a length of 0 gives zeros. check: whether lengths are checked to lie in 0 …
    S_max first, which waits for a GPU; None: on a CPU. Unchecked, one outside counts as the nearer bound.
    scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention_decode, or "auto" (see ``choose``).

    T > 1 and what follows the CPU kernel, v3_one_launch and, for D up to 128, v4_cluster take; other kernels
    refuse it, so a GPU takes it in float16 and bfloat16.
    T > 1: lengths count the new tokens, whose keys are in the cache; token t sees the first lengths[b] − T +
    1 + t keys. block_table: int32 (B, C) on q's device, columns side by side; the caches are then (pages,
    H_kv, page, D), page a multiple of 16 from 16 to 256, S_max = C · page, and key j of sequence b is row
    j % page of page block_table[b, j // page]. The kernel reads it; keys of a page outside 0 … pages − 1 are
    not seen. window: the keys that a token sees at most, the last before it and its own. softcap: c > 0,
    scaled scores become c tanh(score / c). sinks: floating point (H,), a score of each head that takes part
    in the softmax and adds nothing; a token without a key stays zeros. A key has no effect on a token that
    does not see it, whatever K, V and the bias hold there.

    Added to the scaled and soft-capped scores, both where both are given: alibi_slopes, float32 (H,) on q's
    device: slope[h] · (j − p) for key j and a token at position p = lengths[b] − T + t (ALiBi: BLOOM, MPT).
    bias: of q's dtype or float32 on q's device, broadcastable to (B, H, T, S_max), any strides: its column j
    is key j of the sequence, so it is as wide as the cache has room, with a block table C · page. −inf masks
    the key, whatever K and V hold there.

    k_scale, v_scale: float32 (H_kv,), contiguous, on q's device, positive. With them k_cache and v_cache are
    of torch.float8_e4m3fn: a key of KV head h is k_scale[h] times what the cache holds, a value v_scale[h]
    times it; rope_cache writes such caches. The CPU kernel and v4_cluster (q of float16 or bfloat16, D up to
    128) take them. check says of scales too whether they are read.

    The same lengths on the same device give the same bits. Raises TypeError and ValueError for arguments that
    break a rule, and Unsupported for what the kernel does not take.
    """
    if (
        block_table is not None
        or window is not None
        or softcap is not None
        or sinks is not None
        or k_scale is not None
        or v_scale is not None
        or alibi_slopes is not None
        or bias is not None
    ):
        options = block_table, window, softcap, sinks, k_scale, v_scale, alibi_slopes, bias
        return _general(q, k_cache, v_cache, lengths, scale, impl, check, options)
    if _dispatch.is_loaded() and not _dispatch.is_compiling() and not _dispatch.modes():
        try:
            if scale is not None:
                scale = float(scale)
            if (
                impl in _dispatch.unmasked
                and (check is False or _within(k_cache, lengths, check))
                and not q.is_meta
                and not _dispatch.transformed()
                and not (
                    _dispatch.is_grad_enabled()
                    and (q.requires_grad or k_cache.requires_grad or v_cache.requires_grad)
                )
            ):
                return _dispatch.operator(q, k_cache, v_cache, lengths, scale, impl)
        except REFUSALS as error:
            check_call(q, k_cache, v_cache, lengths, scale, impl)
            if not is_refusal(error) and q.shape[2] == 1:
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

    if getattr(q, "ndim", 0) == 4 and q.shape[2] > 1:
        return _general(q, k_cache, v_cache, lengths, scale, impl, check, _NO_OPTIONS)
    check_call(q, k_cache, v_cache, lengths, scale, impl)
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


def _general(q, k_cache, v_cache, lengths, scale, impl, check, options):
    """The call that an operator of its own takes; nothing of it is remembered."""
    import torch

    block_table, window, softcap, sinks, k_scale, v_scale, slopes, bias = options
    check_call(q, k_cache, v_cache, lengths, scale, impl, block_table, k_scale, v_scale)
    _check_window(window)
    checks.softcap(softcap)
    checks.sinks(torch, sinks, q)
    checks.slopes(torch, slopes, q)
    room = k_cache.shape[2] * (1 if block_table is None else block_table.shape[1])
    if bias is not None:
        checks.added(torch, bias, q, (*q.shape[:3], room), "(B, H, T, S_max)", "attention_decode")
    if checks.are_read(torch, check, lengths):
        checks.cache_lengths(lengths, room)
        checks.positive(k_scale=k_scale, v_scale=v_scale)
    biased = slopes is not None or bias is not None
    chosen = choose(q, True, k_scale is not None, biased) if impl == "auto" else impl
    sinks = None if sinks is None else sinks.to(torch.float32).contiguous()
    slopes = None if slopes is None else slopes.contiguous()
    scale, softcap = (None if number is None else float(number) for number in (scale, softcap))
    given = q, k_cache, v_cache, lengths, scale
    more = block_table, window or 0, softcap, sinks, k_scale, v_scale, slopes, bias
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention_decode")
        return torch.ops.fusescope.attention_decode_general.default(*given, chosen, *more)
    return kernels.call("attention_decode_general", *given, impl=chosen, more=more)


def choose(q, general: bool = False, fp8_cache: bool = False, biased: bool = False) -> str:
    """The kernel that "auto" means: the last one for this GPU that takes the dtype; general: of those
    that take more than one query over a padded cache; fp8_cache: of those that take one with scales; biased:
    of those that take ALiBi and a bias."""
    if q.device.type == "cpu":
        return "cpu"
    facts = _facts(q, general, fp8_cache)
    return tracing.last_that_takes("attention_decode", q.device.index, *facts, bias=biased)


def kernel_for(q, general: bool = False, biased: bool = False) -> str | None:
    """As ``choose``; None where no kernel takes it, nor the head size."""
    if q.shape[3] % 8 or not 32 <= q.shape[3] <= 256:
        return None
    if q.device.type == "cpu":
        return "cpu"
    return tracing.that_takes("attention_decode", q.device.index, *_facts(q, general, False), bias=biased)


def _facts(q, general: bool, fp8_cache: bool) -> tuple:
    return q.dtype, int(q.shape[3]), False, True, False, False, general, False, fp8_cache


def _fake(q, k_cache, v_cache, lengths, scale, impl):
    return empty_like(q, k_cache, v_cache, lengths)


def _general_fake(
    q,
    k_cache,
    v_cache,
    lengths,
    scale,
    impl,
    block_table=None,
    window=0,
    softcap=None,
    sinks=None,
    k_scale=None,
    v_scale=None,
    alibi_slopes=None,
    bias=None,
):
    more = block_table, sinks, k_scale, v_scale, alibi_slopes, bias
    return empty_like(q, k_cache, v_cache, lengths, *more)


register_fakes({"attention_decode": _fake, "attention_decode_general": _general_fake})


def check_call(q, k, v, lengths, scale, impl, block_table=None, k_scale=None, v_scale=None) -> None:
    """TypeError, ValueError or Unsupported unless the arguments fit together; their values are not read."""
    import torch

    checks.are_tensors(torch, q=q, k_cache=k, v_cache=v, lengths=lengths)
    if q.dim() != 4 or q.shape[2] > MOST_TOKENS:
        raise ValueError(
            f"q is (B, H, T, D), one to {MOST_TOKENS} new queries a sequence; its shape is {tuple(q.shape)}"
        )
    if block_table is not None:
        _check_pages(torch, q, k, v, block_table)
    elif k.dim() != 4 or k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            "k_cache and v_cache have one shape (B, H_kv, S_max, D) with q's batch and head size; q "
            "and the caches are "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if k_scale is None and v_scale is None and k.dtype != torch.float8_e4m3fn:
        checks.one_dtype(torch, q=q, k_cache=k, v_cache=v)
    else:
        checks.fp8_cache(torch, q, k, v, k_scale=k_scale, v_scale=v_scale)
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


def _check_pages(torch, q, k, v, table) -> None:
    checks.are_tensors(torch, block_table=table)
    if k.dim() != 4 or k.shape != v.shape or k.shape[3] != q.shape[3]:
        raise ValueError(
            "with a block table k_cache and v_cache have one shape (pages, H_kv, page, D) with q's head "
            f"size; q and the caches are {checks.shapes(q, k, v)}"
        )
    if table.dtype != torch.int32 or table.dim() != 2 or table.shape[0] != q.shape[0] or not table.shape[1]:
        raise ValueError(
            f"block_table is int32 (B, pages of a sequence), a row for each of the {q.shape[0]} sequences; "
            f"this one is {table.dtype} of shape {tuple(table.shape)}"
        )
    if table.stride(1) != 1:
        raise ValueError("block_table has the pages of a sequence side by side; call .contiguous()")
    checks.one_device("q and block_table", q, table)
    if k.shape[2] % 16 or not 16 <= k.shape[2] <= 256:
        raise Unsupported(f"pages of {k.shape[2]} keys; multiples of 16 from 16 to 256 are supported")


def _check_window(window) -> None:
    if window is not None and (not isinstance(window, int) or isinstance(window, bool) or window < 1):
        raise ValueError(f"window is a number of keys, at least 1, or None, not {window!r}")
