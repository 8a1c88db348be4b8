"""attention_varlen(): packed sequences, checked, a kernel chosen, called."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import candidates, checks, tracing
from fusescope.ops.attention.dispatch.dispatch import REFUSALS, Dispatch, empty_like, is_refusal

_INT_RANGE = 1 << 30
_dispatch = Dispatch("attention_varlen")


def attention_varlen(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    *,
    causal=False,
    window=None,
    scale=None,
    impl="auto",
    check=None,
):
    """softmax(scale q kᵀ) v inside each of several sequences that lie packed: contiguous (T_q, H, D) of q's
    dtype.

    q: (T_q, H, D); k, v: (T_k, H_kv, D) with H a multiple of H_kv (query head h reads KV head h // (H /
    H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to
    256. cu_seqlens_q, cu_seqlens_k: int32 (batch + 1,), contiguous, on q's device, rising from 0; sequence b
    has the rows cu_seqlens[b] … cu_seqlens[b + 1] − 1, which may be none. They are read there, by the kernel:
    nothing waits for them, and a captured graph follows their values. check: whether their values are checked
    first, which waits for a GPU; None: on a CPU. Unchecked, values that break the rule give wrong results,
    but no access outside.

    Query i of a sequence of n queries and m keys stands at position p = i + m − n (aligned at the end).
    causal: it sees the keys j ≤ p. window: (left, right), it sees the keys p − left ≤ j ≤ p + right; −1: no
    limit on that side; causal makes right 0. None: (−1, −1). A window costs time in proportion to it: what
    lies outside is not loaded. One at least as long as all rows together runs as none. Rows that see no key,
    and rows after the last sequence, are zeros. scale: 1/sqrt(D) where None. impl: a kernel of
    cuda/attention_varlen, or "auto".

    What other sequences hold has no effect, NaN included, and neither has a key of the same sequence on a
    query that does not see it.

    Raises TypeError and ValueError for arguments that break a rule, and Unsupported for what the kernel does
    not take.
    """
    if _dispatch.is_loaded() and not _dispatch.is_compiling() and not _dispatch.modes():
        try:
            if scale is not None:
                scale = float(scale)
            if (
                impl in _dispatch.unmasked
                and type(causal) is bool
                and (window is None or checks.is_window(window))
                and (check is False or _rise(q, k, cu_seqlens_q, cu_seqlens_k, check))
                and not q.is_meta
                and not _dispatch.transformed()
                and not (
                    _dispatch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
                )
            ):
                if window is None:
                    return _dispatch.operator(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl)
                return _dispatch.operator(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl, *window)
        except REFUSALS as error:
            _check(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, window, scale, impl)
            if not is_refusal(error):
                raise
    return _first_call(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, window, scale, impl, check)


def _rise(q, k, cu_q, cu_k, check) -> bool:
    """Whether a remembered call may go on: its offsets rise, or need not be read."""
    if check is not None or not (cu_q.is_cpu and cu_k.is_cpu):
        return check is None
    return checks.rise(cu_q, q.shape[0]) and checks.rise(cu_k, k.shape[0])


def _first_call(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, window, scale, impl, check):
    """The call with every check; remembered if it goes well."""
    import torch

    _check(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, window, scale, impl)
    if checks.are_read(torch, check, cu_seqlens_q):
        checks.offsets("cu_seqlens_q", cu_seqlens_q, q.shape[0])
        checks.offsets("cu_seqlens_k", cu_seqlens_k, k.shape[0])
    scale = None if scale is None else float(scale)
    chosen = impl
    if impl == "auto":
        chosen = choose(q, k, v, 1.0 if scale is None else scale, window)
    more = () if window is None else window
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention_varlen")
        return torch.ops.fusescope.attention_varlen.default(
            q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, chosen, *more
        )
    given = q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale
    out = _dispatch.call(*given, impl=impl, chosen=chosen, more=more)
    if q.shape[0]:  # without rows no kernel was called
        _dispatch.remember(None, impl, ())
    return out


def choose(q, k, v, scale: float = 1.0, window=None) -> str:
    """The kernel that "auto" means: the last one for this GPU that takes dtype, strides, scale and a window
    where there is one, and for which there are rows enough."""
    if q.device.type == "cpu":
        return "cpu"
    tma = all(map(candidates.tma_takes, (q, k, v)))
    facts = "attention_varlen", q.device.index, q.dtype, int(q.shape[2]), tma, scale > 0
    more = {"window": window not in (None, (-1, -1))}
    few_rows = q.shape[0] * q.shape[1] < tracing.least_rows(*facts, **more)
    return tracing.last_that_takes(*facts, few_rows=few_rows, **more)


def _fake(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl, left=-1, right=-1):
    return empty_like(q, k, v, cu_seqlens_q, cu_seqlens_k)


register_fakes({"attention_varlen": _fake})


def _check(q, k, v, cu_q, cu_k, causal, window, scale, impl) -> None:
    import torch

    checks.are_tensors(torch, q=q, k=k, v=v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
    if not isinstance(causal, bool):
        raise TypeError(f"causal is True or False, not {causal!r}")
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or k.shape[2] != q.shape[2]:
        raise ValueError(
            "q is (T_q, H, D) and k, v are both (T_k, H_kv, D) with q's head size; q, k, v are "
            f"{checks.shapes(q, k, v)}"
        )
    checks.one_dtype(torch, q=q, k=k, v=v)
    for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        if cu.dtype != torch.int32:
            raise TypeError(f"{name} is of int32, not {cu.dtype}")
        if cu.dim() != 1 or cu.shape[0] < 2 or not cu.is_contiguous():
            raise ValueError(
                f"{name} is contiguous, (batch + 1,) numbers for at least one sequence; its shape is "
                f"{tuple(cu.shape)}"
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
    checks.window(window)
    checks.scale(scale)
    checks.implementation(impl)
