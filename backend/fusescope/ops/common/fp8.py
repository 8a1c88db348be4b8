"""KV caches of fp8 (e4m3, torch.float8_e4m3fn) with a float32 scale per KV head: value = number × scale. Torch is
imported inside."""

from __future__ import annotations

MOST = 448.0
"""The largest number of e4m3."""


def largest(heads):
    """float32 (H_kv,): the largest size in (…, H_kv, rows, D), 1 where all is zero: over MOST the smallest scale
    that saturates nothing."""
    found = heads.abs().amax((*range(heads.dim() - 3), -2, -1)).float()
    return found.where(found > 0, 1.0)


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
