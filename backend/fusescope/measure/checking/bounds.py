"""The error that a result may have, as a lower and an upper bound of each element in the result's own dtype:
results of timed calls are compared with these on their device, in a fraction of the time that float64 takes.

Bounds are rounded outwards by one unit in the last place: what the comparison in float64 (check.py) lets
pass, these do too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from fusescope.ops.base import Tolerance

_PIECE = {"cpu": 1 << 18, "cuda": 1 << 22}


def pieces(t: torch.Tensor) -> Iterator[slice]:
    """Slices of a flat tensor that are compared in float64 one after the other. Temporaries of 2 MiB stay in
    a CPU's caches and in memory that malloc has: with 128 MiB a comparison took six times as long. On a GPU
    32 MiB bound them, and keep it busy."""
    step = _PIECE["cpu" if t.is_cpu else "cuda"]
    return (slice(start, start + step) for start in range(0, t.numel(), step))


class Bounds:
    """Of results of ``dtype`` against ``reference``, on ``device``. NaN and Inf are wanted where the
    reference has them, a reference beyond the dtype's range counting as infinite."""

    def __init__(self, reference: torch.Tensor, tolerance: Tolerance, dtype: torch.dtype, device: str):
        self.low, self.high = (torch.empty(reference.numel(), dtype=dtype, device=device) for _ in range(2))
        flat, largest = reference.reshape(-1), torch.finfo(dtype).max
        self._nan = False
        for piece in pieces(self.low):
            ref = flat[piece].to(device).double()
            self._nan |= bool(ref.isnan().any())
            rounded = torch.where(ref.abs() > largest, ref.sign() * math.inf, ref)
            allowed = tolerance.allowed(ref.abs(), piece.start)
            for sign, bound in ((-1, self.low), (1, self.high)):
                end = rounded + sign * allowed
                end = end + sign * torch.finfo(dtype).eps * end.abs()
                end = torch.where(rounded.isfinite(), end.clamp(-largest, largest), rounded)
                bound[piece] = end.to(dtype)

    def broken_by(self, out: torch.Tensor) -> str | None:
        """What is wrong with a result of as many elements, with its first wrong element; None where it lies
        within."""
        flat, wrong, first = out.reshape(-1), 0, -1
        for piece in pieces(flat):
            some, low, high = (t[piece] for t in (flat, self.low, self.high))
            right = (some >= low) & (some <= high)
            if self._nan:
                right |= some.isnan() & low.isnan()
            if bool(right.all()):
                continue
            first = piece.start + int((~right).to(torch.uint8).argmax()) if first < 0 else first
            wrong += int((~right).sum())
        if not wrong:
            return None
        low, high = float(self.low[first]), float(self.high[first])
        return (
            f"{wrong} of {flat.numel()} elements are out of tolerance; the first, "
            f"{position(first, out.shape)}, is {float(flat[first]):.6g}, allowed is {low:.6g} to {high:.6g}"
        )


def position(index: int, shape) -> str:
    """The place of an element of a contiguous tensor, as "[0, 17]"."""
    found = []
    for size in reversed(shape):
        index, i = divmod(index, size)
        found.append(i)
    return str(list(reversed(found)))
