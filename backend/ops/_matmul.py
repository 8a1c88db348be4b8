"""What GEMM and batched GEMM share: the error model, and which kernel "auto" means."""

from __future__ import annotations

from functools import cache

from backend.ops._cases import UNIT_ROUNDOFF
from backend.ops.base import Tolerance

LARGEST = 1 << 16


def accumulation_tolerance(k: int, dtype: str) -> Tolerance:
    """What a product over k terms, each factor standard normal, may be off by when it is accumulated in fp32, u = 2^-24.

    Rounding: partial sum i is about sqrt(i), each addition errs by at most u times it, u / sqrt(3) of it as a standard
    deviation; over k additions that is u k / sqrt(6), and six standard deviations are 2.5 u k (3 u k here).
    Truncation: tensor cores cut off instead of rounding, so their errors add up with one sign: up to k / 16 steps of at most
    2 u each, relative to partial sums of up to 4 sqrt(i): u k^1.5 / 3 (1 / 2 here), for 16-bit storage only.
    Relative: one rounding to the storage type.
    """
    u = UNIT_ROUNDOFF["float32"]
    absolute = 3 * u * k
    if dtype != "float32":
        absolute += 0.5 * u * k**1.5
    relative = 1.01 * UNIT_ROUNDOFF[dtype]
    return Tolerance(absolute, relative, f"fp32 accumulation over k = {k} terms, then one rounding to {dtype}")


def chosen(family: str, a) -> str:
    """The kernel that impl="auto" means for operand ``a``: the last of the ladder, and v2_tiled or v1_tiled (any GPU, any dtype)
    where that is the tensor-core kernel and it does not take the dtype or the GPU."""
    from backend import kernels

    name = kernels.choose(family, a.device.type)
    if "tensor_core" in name and (a.element_size() == 4 or _capability(a.device.index)[0] < 8):
        return {"gemm": "v2_tiled", "bmm": "v1_tiled"}[family]
    return name


@cache
def _capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)
