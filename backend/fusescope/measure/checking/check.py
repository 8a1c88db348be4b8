"""Correct first: an implementation's result against the reference, before anything is timed.

A ``Case`` holds one set of inputs with a copy of them and the reference; ``verify`` runs one call on poisoned
memory and checks its result: kind, shape, dtype and device of the output, every element within the operator's
tolerance, NaN and Inf exactly where the reference has them, inputs left as they were.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from fusescope import ops
from fusescope.analysis.accuracy.sums import cosine
from fusescope.core.records import Accuracy
from fusescope.measure.checking.bounds import Bounds, pieces, position
from fusescope.measure.checking.inputs import Kept, same, tensors
from fusescope.measure.checking.outputs import copies, deferred, plain
from fusescope.measure.checking.poison import poisoned
from fusescope.ops.base import Tolerance

NORM = {"float16": 2.5 * 2.0**-11}
"""Error of a result as a whole, over its size: 2.5 units of roundoff. Sums are kept in fp32, so a result
has one rounding, 0.4 units in the root mean square, and few more of intermediate values: 1.5 units at most
among all implementations on a CPU. What is computed in bf16 has 3.2, each element within its tolerance."""
_DEVIATIONS = 7.0  # of an element whose error has a known deviation: one in 4e11 is further off
_SUBNORMAL = {"float16": 2.0**-25}  # half the spacing of the smallest numbers


@dataclass(frozen=True)
class Outcome:
    """reason: None where the result is right, else what is wrong with it, with the worst element."""

    accuracy: Accuracy | None
    reason: str | None = None


@dataclass
class Case:
    """One set of inputs, kept with a copy to notice changes, and the reference result on it ("float64" or
    "float32")."""

    module: ModuleType
    values: Mapping[str, Any]
    dtype: str
    device: str
    seed: int
    contiguous: bool = True
    inputs: dict[str, Any] = field(init=False)
    reference: torch.Tensor = field(init=False)
    precision: str = field(init=False)

    def __post_init__(self):
        self.inputs = self.module.inputs(
            self.values, self.dtype, self.device, self.seed, contiguous=self.contiguous
        )
        self._settle()

    def allowed(self) -> Tolerance:
        """The error that an element, and the result as a whole, may have."""
        found = ops.tolerance(self.module.NAME, self.values, self.dtype)
        if hasattr(self.module, "deviation"):
            own, _ = computed(self.module.deviation, self.inputs)
            found = replace(found, own=_DEVIATIONS * own.reshape(-1))
        return replace(found, norm=found.norm or NORM.get(self.dtype))

    def renew(self) -> None:
        """Put fresh values into the same tensors: catches kernels that return cached results.

        Integer tensors (lengths, tables) stay, because what depends on them is prepared outside the call.
        """
        fresh = dict(
            tensors(
                self.module.inputs(
                    self.values, self.dtype, self.device, self.seed + 10, contiguous=self.contiguous
                )
            )
        )
        for name, tensor in tensors(self.inputs):
            if self.renewed(name, tensor):
                tensor.data.copy_(fresh[name])  # unseen by the version counter that a cache may go by
        self._settle()

    def joined(self, out: Any) -> Any:
        """A result as the one tensor that is compared."""
        return ops.joined(self.module.NAME, out)

    def renewed(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether an input's values are drawn again by ``renew``."""
        return tensor.dtype.is_floating_point

    def _settle(self) -> None:
        self._bounds: Bounds | None = None
        self._before = {k: v.clone() for k, v in tensors(self.inputs)}
        self.reference, self.precision = computed(self.module.reference, self.inputs)
        self.tolerance = self.allowed()

    def verify(self, run: Callable[[], Any], out: Any = None, every: bool = False) -> Outcome:
        """Check ``out``, the result of a call already made on these inputs, or else one made now on poisoned
        memory (``every``: also what the call allocates a second time, see poison.py)."""
        early = []
        if out is None:
            size = self.reference.numel() * getattr(torch, self.dtype).itemsize
            with poisoned(self.device, size, every):
                out = run()
                early = copies(out)
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
        if fault := deferred(out):
            return Outcome(None, fault)
        late = not all(same(copy, tensor) for tensor, copy in early)
        out = self._finished(run, out)
        if fault := wrong_kind(out, self.reference.shape, self.dtype, self.device):
            return Outcome(None, fault)
        outcome = self.against_reference(out)
        if late:
            return Outcome(
                outcome.accuracy,
                "its result changed after the call had returned: work in another thread or on another stream "
                "that nothing waits for",
            )
        if changed := self.kept().restore():
            return Outcome(outcome.accuracy, f"it changed its input {', '.join(changed)}")
        return outcome

    def against_reference(self, out: torch.Tensor) -> Outcome:
        """A result of the right kind against the reference."""
        return compare(out, self.reference, self.tolerance, self.precision)

    def kept(self) -> Kept:
        """The inputs with what they hold now, to be put back."""
        return Kept(self.inputs, self._before, getattr(self.module, "WRITES", ()))

    def comparison(self) -> Callable[[Callable[[], Any], Any], str | None]:
        """``look(run, out)``: what is wrong with a result of a timed call on these inputs, else None. It
        holds bounds instead of the reference in float64."""
        shape, dtype, device = self.reference.shape, self.dtype, self.device
        if self._bounds is None:
            self._bounds = Bounds(self.reference, self.tolerance, getattr(torch, dtype), device)
        bounds, finished = self._bounds, self._finished

        def look(run: Callable[[], Any], out: Any) -> str | None:
            if fault := deferred(out):
                return fault
            out = finished(run, out)
            return wrong_kind(out, shape, dtype, device) or bounds.broken_by(out)

        return look

    def _finished(self, run: Callable[[], Any], out: Any) -> Any:
        """A call's result in the reference's form."""
        finish, out = getattr(run, "finish", None), plain(out)
        return plain(self.joined(finish(out) if finish else out))


def wrong_kind(out: Any, shape: torch.Size, dtype: str, device: str) -> str | None:
    """What is wrong with a result before any of its elements is looked at."""
    if not isinstance(out, torch.Tensor):
        return f"it returned {type(out).__name__}, not a tensor"
    if out.layout != torch.strided:
        return f"the result is {str(out.layout).removeprefix('torch.')}, not dense"
    if out.shape != shape:
        return f"the result has shape {tuple(out.shape)}, not {tuple(shape)}"
    if out.dtype != getattr(torch, dtype):
        return f"the result is {str(out.dtype).removeprefix('torch.')}, not {dtype}"
    if out.device.type != torch.device(device).type:
        return f"the result is on {out.device}, not {device}"
    return None


def computed(specification: Callable[..., torch.Tensor], inputs: Mapping[str, Any]):
    """What an operator's ``reference`` (or ``deviation``) gives in float64, and "float64". Where that does
    not fit on a GPU: in float32 ("float32") if it takes a dtype, else in float64 in main memory. Raises
    torch.OutOfMemoryError when that does not fit either.
    """
    try:
        return specification(inputs), "float64"
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
    if "dtype" in inspect.signature(specification).parameters:
        return specification(inputs, dtype=torch.float32), "float32"
    moved = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    return specification(moved), "float64"


def compare(
    out: torch.Tensor, ref: torch.Tensor, tolerance: Tolerance, precision: str = "float64"
) -> Outcome:
    """Elementwise comparison of a result with the reference of the same shape.

    max_rel is relative to max(|ref|, tolerance.absolute), so that elements near zero do not drown the rest; a
    reference beyond the result's range counts as infinite, as rounding makes it.
    """
    if ref.numel() == 0:
        return Outcome(Accuracy(0.0, 0.0, 1.0, precision))
    limit = torch.finfo(out.dtype).max
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)
    max_abs = max_rel = dot = norm_out = norm_ref = off = 0.0
    worst, worst_at, failing, unequal, unequal_at, finite = -1.0, 0, 0, 0, 0, 0
    for piece in pieces(flat_out):
        o = flat_out[piece].double()
        r = flat_ref[piece].to(o.device).double()
        rounded = torch.where(r.abs() > limit, r.sign() * math.inf, r)
        both = o.isfinite() & rounded.isfinite()
        agree = both | (o == rounded) | (o.isnan() & r.isnan())
        if bad := int((~agree).sum()):
            if not unequal:
                unequal_at = piece.start + int((~agree).to(torch.uint8).argmax())
            unequal += bad
        o, r = torch.where(both, o, 0.0), torch.where(both, r, 0.0)
        difference = (o - r).abs()
        off += float(difference.square().sum())
        size = r.abs()
        excess = difference / tolerance.allowed(size, piece.start)
        excess = torch.where(difference == 0, 0.0, excess)  # a tolerance of zero is kept by equality only
        failing += int((excess > 1).sum())
        top = float(excess.max())
        if top > worst:
            worst, worst_at = top, piece.start + int(excess.argmax())
        finite += int(both.sum())
        max_abs = max(max_abs, float(difference.max()))
        max_rel = max(max_rel, float((difference / size.clamp_min(tolerance.absolute or 1e-300)).max()))
        dot, norm_out, norm_ref = (
            dot + float((o * r).sum()),
            norm_out + float((o * o).sum()),
            norm_ref + float((r * r).sum()),
        )
    accuracy = Accuracy(max_abs, max_rel, cosine(dot, norm_out, norm_ref), precision) if finite else None
    total = flat_ref.numel()
    if unequal:
        at = position(unequal_at, ref.shape)
        return Outcome(
            accuracy,
            f"{unequal} of {total} elements are NaN or infinite where the reference is not, or the "
            f"reverse; the first, {at}, is "
            f"{_apart(flat_out[unequal_at], flat_ref[unequal_at])}",
        )
    if failing:
        allowed = float(tolerance.allowed(flat_ref[worst_at : worst_at + 1].double().abs(), worst_at))
        return Outcome(
            accuracy,
            f"{failing} of {total} elements are out of tolerance; the worst, "
            f"{position(worst_at, ref.shape)}, is "
            f"{_apart(flat_out[worst_at], flat_ref[worst_at])}, allowed difference {allowed:.2g}",
        )
    dtype = str(out.dtype).removeprefix("torch.")
    smallest = _SUBNORMAL.get(dtype, 0.0) * math.sqrt(finite)
    if tolerance.norm is not None and math.sqrt(off) > tolerance.norm * math.sqrt(norm_ref) + smallest:
        return Outcome(
            accuracy,
            f"the result as a whole is off by {math.sqrt(off / norm_ref) if norm_ref else math.inf:.2g} of "
            f"its size, allowed is {tolerance.norm:.2g} in {dtype}: is it computed in a coarser format?",
        )
    return Outcome(accuracy)


def _apart(out: torch.Tensor, ref: torch.Tensor) -> str:
    """ "14.29247, the reference 14.29240": with as many digits, six at least, as show their difference to
    two."""
    a, b = float(out), float(ref)
    digits = 6
    if math.isfinite(a) and math.isfinite(b) and a != b:
        digits += max(0, math.ceil(math.log10(max(abs(a), abs(b)) / abs(a - b))) - 4)
    return f"{a:.{min(digits, 17)}g}, the reference {b:.{min(digits, 17)}g}"
