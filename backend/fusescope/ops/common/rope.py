"""Rotary positions: the angles that a model turns its heads by, as one table of cosines and sines, and what
``rope_cache`` refuses. Torch is imported inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fusescope.ops.common.cases import BYTES, check_tensors

_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def inverse_frequencies(
    size: int, theta: float = 10000.0, scaling: Mapping[str, Any] | None = None, device="cpu"
):
    """float32 (size / 2,): theta^(-2 i / size), the radians per position of each pair of elements (Su et al.
    2021, arXiv 2104.09864).

    size: rotated elements of a head, even. scaling: transformers' rope_parameters with rope_type "default",
    "linear" (all divided by factor) or "llama3" (Llama 3.1's: long wavelengths divided by factor, short ones
    kept, a blend between, by original_max_position_embeddings over low_freq_factor and high_freq_factor).
    Raises ValueError for another type or a missing key.
    """
    import torch

    if size < 2 or size % 2:
        raise ValueError(f"the rotated elements of a head are an even number from 2, not {size}")
    found = 1.0 / theta ** (torch.arange(0, size, 2, device=device).float() / size)
    kind = (scaling or {}).get("rope_type", "default")
    if kind == "default":
        return found
    if kind not in ("linear", "llama3"):
        raise ValueError(f"rope_type is default, linear or llama3, not {kind!r}")
    missing = [key for key in (_LLAMA3 if kind == "llama3" else _LLAMA3[:1]) if key not in scaling]
    if missing:
        raise ValueError(f"rope_type {kind} needs {', '.join(missing)}")
    factor, *bounds = (float(scaling[key]) for key in (_LLAMA3 if kind == "llama3" else _LLAMA3[:1]))
    if kind == "linear":
        return found / factor
    low, high, context = bounds
    turns = context * found / (2 * math.pi)  # of a pair within the first context length
    blend = ((turns - low) / (high - low)).clamp(0, 1)  # 0: divided, 1: kept
    return (1 - blend) * found / factor + blend * found


def cos_sin(positions, inverse, scale: float = 1.0):
    """float32 (*positions.shape, R): R / 2 cosines, then R / 2 sines of position times inverse frequency,
    each times ``scale`` (transformers' attention_scaling).

    positions: integers on the device of inverse, float32 (R / 2,). Of torch.arange(P) it is a table (P, R);
    of a call's positions (B, S) it is that call's rows. ``rope_cache`` takes both.
    """
    import torch

    turns = positions[..., None].float() * inverse.float()
    return torch.cat((turns.cos(), turns.sin()), -1) * scale


def turned(x, row):
    """x (B, S, heads, D) with the first R elements of each head turned by row (B, S, R) in x's dtype: the
    halves against each other, as transformers' Llama has it."""
    import torch

    row = row.to(x.dtype)[:, :, None]
    cos, sin = row.chunk(2, -1)
    first, second, rest = x.split((cos.shape[-1], cos.shape[-1], x.shape[-1] - row.shape[-1]), -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)


def check_shapes(q, k, v, cos_sin, k_cache, v_cache, block_table, k_scale=None, v_scale=None) -> None:
    """TypeError or ValueError unless the tensors of ``rope_cache`` fit together."""
    import torch

    check_caches(q, k, v, k_cache, v_cache, k_scale, v_scale)
    if (
        q.dim() != 4
        or k.shape != v.shape
        or k.dim() != 4
        or k.shape[:2] != q.shape[:2]
        or k.shape[3] != q.shape[3]
    ):
        raise ValueError(
            f"rope_cache takes q (B, S, H, D) and k, v (B, S, H_kv, D); not {tuple(q.shape)}, "
            f"{tuple(k.shape)} and {tuple(v.shape)}"
        )
    paged = block_table is not None
    pages = "pages" if paged else "B"
    if (
        k_cache.dim() != 4
        or k_cache.shape != v_cache.shape
        or k_cache.shape[1::2] != k.shape[2:]
        or (not paged and k_cache.shape[0] != q.shape[0])
    ):
        raise ValueError(
            f"k_cache and v_cache are ({pages}, H_kv, {'page' if paged else 'L'}, D) with the heads and "
            f"head size of k, {tuple(k.shape)}; not {tuple(k_cache.shape)} and {tuple(v_cache.shape)}"
        )
    if any(t.shape[3] > 1 and t.stride(3) != 1 for t in (k_cache, v_cache)):
        raise ValueError("the elements of a row of k_cache and v_cache lie side by side; theirs do not")
    if paged:
        if not isinstance(block_table, torch.Tensor) or block_table.dtype != torch.int32:
            raise TypeError("block_table is an int32 tensor (B, columns) on the device of q")
        if block_table.dim() != 2 or block_table.shape[0] != q.shape[0] or block_table.device != q.device:
            raise ValueError(
                f"block_table is (B, columns) on the device of q; not {tuple(block_table.shape)} on "
                f"{block_table.device}"
            )
        if block_table.shape[1] > 1 and block_table.stride(1) != 1:
            raise ValueError("the entries of a row of block_table lie side by side; call contiguous() on it")
        if not 16 <= k_cache.shape[2] <= 256:
            raise ValueError(f"a page has from 16 to 256 places, not {k_cache.shape[2]}")
    if cos_sin is None:
        return
    if not isinstance(cos_sin, torch.Tensor) or cos_sin.dtype != torch.float32 or not cos_sin.is_contiguous():
        raise TypeError("cos_sin is a dense float32 tensor, (positions, R) or (B, S, R), or None")
    size = cos_sin.shape[-1] if cos_sin.dim() else 0
    fits = cos_sin.dim() == 2 or (cos_sin.dim() == 3 and cos_sin.shape[:2] == q.shape[:2])
    if not fits or size < 2 or size % 2 or size > q.shape[3] or cos_sin.device != q.device:
        raise ValueError(
            "cos_sin is (positions, R) or (B, S, R) on the device of q, R even and at most D = "
            f"{q.shape[3]}; not {tuple(cos_sin.shape)} on {cos_sin.device}"
        )


def check_caches(q, k, v, k_cache, v_cache, k_scale, v_scale) -> None:
    """TypeError or ValueError unless all are tensors of q's dtype and device, or with scales the caches of
    float8_e4m3fn."""
    import torch

    scales = {"k_scale": k_scale, "v_scale": v_scale}
    caches = {"k_cache": k_cache, "v_cache": v_cache}
    fp8 = [name for name, t in caches.items() if getattr(t, "dtype", None) == torch.float8_e4m3fn]
    if all(t is None for t in scales.values()) and not fp8:
        check_tensors("rope_cache", tuple(BYTES), q=q, k=k, v=v, **caches)
        return
    check_tensors("rope_cache", tuple(BYTES), q=q, k=k, v=v)
    check_tensors("rope_cache", ("float8_e4m3fn",), **caches)
    for name, t in scales.items():
        if t is None:
            raise ValueError(f"caches of torch.float8_e4m3fn need k_scale and v_scale; {name} is None")
        if not isinstance(t, torch.Tensor) or t.dtype != torch.float32 or not t.is_contiguous():
            raise TypeError(f"{name} is a dense float32 tensor, one number for each head of k")
        if k.dim() != 4 or t.shape != k.shape[2:3] or t.device != q.device:
            raise ValueError(
                f"{name} is (H_kv,), one number for each head of k {tuple(k.shape)}, on the device of q; not "
                f"{tuple(t.shape)} on {t.device}"
            )
    if k_cache.device != q.device:
        raise ValueError(f"the caches are on q's device {q.device}, not on {k_cache.device}")


def check_tokens(q, positions, places) -> None:
    """TypeError or ValueError unless positions, and places where given, have a whole number per token, or
    per sequence, of q."""
    for name, t in {"positions": positions, "places": places}.items():
        if t is not None or name == "positions":
            _check_numbers(name, t, q)


def _check_numbers(name: str, t, q) -> None:
    import torch

    if not isinstance(t, torch.Tensor) or t.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} is an int32 or int64 tensor, not {getattr(t, 'dtype', type(t).__name__)}")
    if t.shape not in (q.shape[:1], q.shape[:2]) or t.device != q.device:
        raise ValueError(
            f"{name} is (B, S) = {tuple(q.shape[:2])} or (B,) on the device of q; not {tuple(t.shape)} on "
            f"{t.device}"
        )


def check_values(q, cos_sin, positions, places, k_cache, block_table) -> None:
    """ValueError where a token would not be written or turned; -1 in places means it."""
    import torch

    def each(t):
        return t if t.dim() == 2 else t[:, None] + torch.arange(q.shape[1], device=t.device)

    def refuse(name, outside, values, rule):
        if bool(outside.any()):
            raise ValueError(f"{rule}; {name} holds {int(values[outside][0])}")

    if not q.shape[0] * q.shape[1]:
        return
    if cos_sin is not None and cos_sin.dim() == 2:
        p, most = each(positions), cos_sin.shape[0] - 1
        refuse("positions", (p < 0) | (p > most), p, f"positions lie in 0 … {most}, the rows of cos_sin")
    p, page = each(places), k_cache.shape[2]
    room = page if block_table is None else page * block_table.shape[1]
    lowest = 0 if places is positions else -1
    refuse("places", (p < lowest) | (p >= room), p, f"places lie in 0 … {room - 1}, the room of a sequence")
    if block_table is not None:
        found = block_table.gather(1, (p.clamp(min=0) // page).long())
        outside = (p >= 0) & ((found < 0) | (found >= k_cache.shape[0]))
        refuse("block_table", outside, found, f"pages lie in 0 … {k_cache.shape[0] - 1}")
