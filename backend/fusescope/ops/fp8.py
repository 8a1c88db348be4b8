"""KV caches of fp8 (e4m3, torch.float8_e4m3fn) with a float32 scale per KV head: value = number × scale.
Torch is imported inside."""

from __future__ import annotations

MOST = 448.0
"""The largest number of e4m3."""


def largest(heads):
    """float32 (H_kv,): the largest size in (…, H_kv, rows, D), 1 where all is zero: over MOST the smallest
    scale that saturates nothing."""
    found = heads.abs().amax((*range(heads.dim() - 3), -2, -1)).float()
    return found.where(found > 0, 1.0)


def roomy(most):
    """float32 (H_kv,): scales for caches that grow, of which ``most`` is the largest size until now: powers
    of 2 from twice to four times the smallest that saturates nothing (1 where that is not finite). Numbers of
    e4m3 are as exact at any power of 2, so the room costs nothing but the smallest subnormal numbers."""
    import torch

    bits = (2 * most / MOST).view(torch.int32)
    above = ((bits & 0x7F800000) + (1 << 23)).view(torch.float32)
    return torch.where(most.isfinite(), above, 1.0)


def to_fp8(heads, scale):
    """(…, H_kv, rows, D) over the scale of its head in float32 as float8_e4m3fn: to nearest, ties to even,
    saturating; NaN stays NaN. What rope_cache writes."""
    import torch

    return (heads.float() / scale[:, None, None]).clamp(-MOST, MOST).to(torch.float8_e4m3fn)


def from_fp8(heads, scale, dtype):
    """(…, H_kv, rows, D) of float8_e4m3fn times the scale of its head, rounded once to dtype."""
    return (heads.float() * scale[:, None, None]).to(dtype)


def taken(t, index):
    """t[index], also of float8_e4m3fn, which torch does not index on every device."""
    import torch

    return t[index] if t.element_size() > 1 else t.view(torch.uint8)[index].view(t.dtype)
