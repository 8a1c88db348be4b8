"""attention_fp8(): attention on e4m3 operands with scales, quantised in the call or before it by
quantise_fp8()."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.plan import of_call

TILE = 64
HEAD_DIMS = (64, 128)
_MOST = 1 << 30


@dataclass(frozen=True)
class Quantised:
    """q, k and v in e4m3, as the kernels read them (cuda/attention_fp8/attention_fp8.cuh); made by
    quantise_fp8.

    q8 (B, H, ⌈S_q / 64⌉, 64 D), k8 and v8 (B, H_kv, ⌈S_k / 64⌉, 64 D): float8_e4m3fn, tiles whose inner
    order is that of the tensor cores, not of rows. q_scale (B, H, ⌈S_q / 64⌉), k_scale (B, H_kv, ⌈S_k /
    64⌉), v_scale (B, H_kv, D): float32, powers of two. dtype: of what was quantised and of the result.
    """

    q8: Any
    k8: Any
    v8: Any
    q_scale: Any
    k_scale: Any
    v_scale: Any
    seq_q: int
    seq_k: int
    dtype: Any

    @property
    def tensors(self) -> tuple:
        return tuple(getattr(self, f.name) for f in fields(self)[:6])

    @property
    def head_dim(self) -> int:
        return self.q8.shape[3] // TILE


def quantise_fp8(q, k, v, *, rotate=False, impl="auto") -> Quantised:
    """q, k and v as e4m3 with scales: of q and k one of each 64 rows of a head, of v one of each column
    of a head.

    q: (B, H, S_q, D); k, v: (B, H_kv, S_k, D), H a multiple of H_kv; float16 or bfloat16, any strides,
    CPU or CUDA (Hopper). D: 64 or 128. rotate: q and k are first multiplied by one orthogonal matrix
    (signs, then a Hadamard matrix), which leaves scores as they are and makes them more exact where
    single numbers are much larger than the rest. A key with a NaN or an infinity in k or v counts as NaN
    in all columns, as a row of q does. Numbers below 2^-69 become zeros. impl: a kernel of
    cuda/attention_fp8, or "auto".

    Raises TypeError, ValueError and Unsupported as attention_fp8 does.
    """
    import torch

    _check_operands(torch, q, k, v)
    if not isinstance(rotate, bool):
        raise TypeError(f"rotate is True or False, not {rotate!r}")
    checks.implementation(impl)
    given = (q, k, v, rotate)
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention_fp8")
        chosen = choose(q.device) if impl == "auto" else impl
        eights = torch.ops.fusescope.attention_fp8_quantise.default(*given, chosen)
    else:
        eights = kernels.call(
            "attention_fp8_quantise", *given, impl=choose(q.device) if impl == "auto" else impl
        )
    return Quantised(*eights, q.shape[2], k.shape[2], q.dtype)


def attention_fp8(q, k=None, v=None, mask=None, *, scale=None, rotate=False, impl="auto"):
    """softmax(scale q kᵀ, where the mask keeps) v on operands of e4m3: contiguous (B, H, S_q, D); forward
    only.

    q, k, v: float16 or bfloat16 as quantise_fp8 takes them, quantised in the call; or as q what
    quantise_fp8 gave, without k and v (rotate does not apply then). mask: a Mask, a Plan from
    ``prepare``, a bool tensor broadcastable to (B, H, S_q, S_k), True = keep, or None, as of attention();
    rows without a live key are zeros. scale: positive, 1/sqrt(D) where None. impl: a kernel of
    cuda/attention_fp8, or "auto".

    Scores are summed by the tensor cores' accumulators for 8-bit operands, weights are rounded to e4m3
    relative to their row's largest: a result is off by some 3 % of its size on random operands that e4m3
    holds, by 5 % on others (cuda/attention_fp8/README.md). A masked key has no effect, NaN included; a
    row that sees a NaN is NaN in all columns.

    Raises TypeError and ValueError for arguments that break a rule, Unsupported for what the kernel does
    not take, and RuntimeError for an unprepared mask under CUDA graph capture or torch.compile.
    """
    import torch

    if isinstance(q, Quantised):
        if k is not None or v is not None:
            raise TypeError("k and v are left out where q is what quantise_fp8 gave")
        if rotate:
            raise ValueError("rotate is for operands that are quantised in the call: give it to quantise_fp8")
        eights = q
    else:
        eights = quantise_fp8(q, k, v, rotate=rotate, impl=impl)
    checks.scale(scale)
    checks.implementation(impl)
    if scale is not None and not 0 < float(scale) < float("inf"):
        raise Unsupported(f"scale {scale!r}; positive finite numbers are supported")
    given, more = _operands(torch, eights, mask, None if scale is None else float(scale))
    chosen = choose(eights.q8.device) if impl == "auto" else impl
    if torch.compiler.is_compiling():
        tracing.load(eights.q8.device.type, "attention_fp8")
        return torch.ops.fusescope.attention_fp8.default(*given, chosen, *more)
    return kernels.call("attention_fp8", *given, impl=chosen, more=more)


def choose(device) -> str:
    """The kernel that "auto" means: the last one for this device."""
    if device.type == "cpu":
        return "cpu"
    return kernels.choose("attention_fp8", str(device))


def _operands(torch, eights: Quantised, mask, scale):
    """What the operator takes before and after the name of the kernel."""
    b, h, d = eights.q8.shape[0], eights.q8.shape[1], eights.head_dim
    device = eights.q8.device
    q = SimpleNamespace(shape=(b, h, eights.seq_q, d), device=device)
    k = SimpleNamespace(shape=(b, eights.k8.shape[1], eights.seq_k, d), device=device)
    is_causal = str(mask) == "causal" if _is_mask(mask) else False
    plan = None if is_causal else of_call.plan_of(mask, q, k)
    if plan is not None:
        checks.plan(plan, q, k)
        is_causal = plan.mask is not None and str(plan.mask) == "causal"
        plan = None if plan.is_full or is_causal else plan
    bfloat16 = eights.dtype == torch.bfloat16
    given = (*eights.tensors, eights.seq_q, eights.seq_k, bfloat16, is_causal)
    return given, (None if plan is None else plan.buffer, "" if plan is None else plan.layout, scale)


def _is_mask(mask) -> bool:
    from fusescope.masks import Mask

    return isinstance(mask, Mask)


def _check_operands(torch, q, k, v) -> None:
    checks.dense(torch, q, k, v, function="attention_fp8")
    if q.dtype == torch.float32:
        raise Unsupported("dtype torch.float32; float16 and bfloat16 are quantised")
    if q.shape[3] not in HEAD_DIMS:
        raise Unsupported(f"head size {q.shape[3]}; 64 and 128 are supported")
    if q.shape[2] >= _MOST or k.shape[2] >= _MOST:
        raise Unsupported(f"a sequence of {max(q.shape[2], k.shape[2])}; fewer than 2^30 rows are supported")


def _quantise_fake(q, k, v, rotate, impl):
    import torch

    e4m3, d = torch.float8_e4m3fn, q.shape[3]
    q_tiles, k_tiles = (-(-t.shape[2] // TILE) for t in (q, k))
    heads, kv = tuple(q.shape[:2]), tuple(k.shape[:2])
    return (
        q.new_empty((*heads, q_tiles, TILE * d), dtype=e4m3),
        q.new_empty((*kv, k_tiles, TILE * d), dtype=e4m3),
        q.new_empty((*kv, k_tiles, TILE * d), dtype=e4m3),
        q.new_empty((*heads, q_tiles), dtype=torch.float32),
        q.new_empty((*kv, k_tiles), dtype=torch.float32),
        q.new_empty((*kv, d), dtype=torch.float32),
    )


def _fake(
    q8,
    k8,
    v8,
    q_scale,
    k_scale,
    v_scale,
    seq_q,
    seq_k,
    bfloat16,
    causal,
    impl,
    plan=None,
    layout="",
    scale=None,
):
    import torch

    dtype = torch.bfloat16 if bfloat16 else torch.float16
    return q8.new_empty((*q8.shape[:2], seq_q, q8.shape[3] // TILE), dtype=dtype)


register_fakes({"attention_fp8_quantise": _quantise_fake, "attention_fp8": _fake})
