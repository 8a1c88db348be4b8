"""Cases of packed attention with any lengths of queries and keys, and the judge of their results."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch

from fusescope.measure.checking.check import compare
from fusescope.ops.attention import attention_varlen
from fusescope.ops.attention.describe.cases import TOLERANCE
from fusescope.ops.fused.attention_varlen import specified


@dataclass
class Packed:
    """args as the operator takes them; cu_q and cu_k as lists."""

    args: tuple
    cu_q: list[int]
    cu_k: list[int]
    causal: bool
    scale: float
    window: tuple[int, int] | None = None


def make(
    queries,
    keys,
    dtype,
    heads=(1, 1),
    dim=32,
    causal=False,
    more=0,
    strided=False,
    device="cpu",
    seed=0,
    window=None,
) -> Packed:
    """Sequences of these lengths, with ``more`` rows after the last. strided: behind an odd offset, heads in
    the wrong order."""
    generator = torch.Generator(device=device).manual_seed(seed)
    cu_q, cu_k = [0, *accumulate(queries)], [0, *accumulate(keys)]

    def rows(count, n):
        values = torch.randn(count, n, dim, generator=generator, device=device).to(getattr(torch, dtype))
        if not strided:
            return values
        view = values.new_empty(values.numel() + 1)[1:].view(n, count, dim).transpose(0, 1)
        return view.copy_(values)

    q, k, v = (
        rows(cu_q[-1] + more, heads[0]),
        rows(cu_k[-1] + more, heads[1]),
        rows(cu_k[-1] + more, heads[1]),
    )
    if more:  # what belongs to no sequence must not be looked at
        k[-more:], v[-more:] = float("nan"), float("nan")
    offsets = (torch.tensor(cu, dtype=torch.int32, device=device) for cu in (cu_q, cu_k))
    return Packed((q, k, v, *offsets), cu_q, cu_k, causal, dim**-0.5, window)


def call(case: Packed, impl: str = "auto"):
    """What attention_varlen gives."""
    return attention_varlen(*case.args, causal=case.causal, window=case.window, scale=case.scale, impl=impl)


def wrong(out, case: Packed, dtype: str) -> str | None:
    """None where a result is right everywhere, rows outside of every sequence zero; else what is wrong."""
    q, k, v = case.args[:3]
    reference = specified(q, k, v, case.cu_q, case.cu_k, case.causal, case.window)
    if out.shape != reference.shape or not out.is_contiguous():
        return f"shape {tuple(out.shape)}, strides {out.stride()}"
    return compare(out, reference, TOLERANCE[dtype]).reason
