"""What the place of buffers does to a comparison: the ratio of equal implementations over many shapes, and a
slow-down of one per cent that must be found against it."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from fusescope.core.records import BenchSpec, Record
from fusescope.core.reporter import Reporter
from fusescope.measure.bench import Bench
from fusescope.measure.selfcheck.pairs import b_over_a
from fusescope.measure.selfcheck.row import Row
from fusescope.measure.timing.timer import Sampler
from fusescope.measure.trial import Trial

SHAPES = tuple((rows, cols) for rows in (1000, 4096, 8192, 16384) for cols in (512, 768, 1000, 1024, 4096))
"""Rows and columns of a softmax in half precision; at 8192 × 1024 equal ones differed by up to 0.8 % where
buffers stayed."""
ALLOWED = (
    0.002  # that a ratio of equal implementations may be off, in each shape: sampled until that is known
)
PLANTED, SAME_WITHIN, FOUND = 0.01, 0.005, 0.95
_BUDGET_S = 15.0  # most are known to ALLOWED in 5 seconds; on an H100 4 of 20 were not

Shapes = tuple[tuple[int, int], ...]


def equal(
    device: str, seed: int, reporter: Reporter, step: Callable[[str], None], shapes: Shapes = SHAPES
) -> Row:
    """How far the ratio of two equal implementations lies from 1, at most over the shapes."""
    off, verdicts = {}, []
    for number, shape in enumerate(shapes):
        step(f"equal implementations {shape[0]} × {shape[1]}, {number + 1} of {len(shapes)}")
        found = _compared(device, shape, seed + number, 0.0, ALLOWED, reporter).speedup
        off[shape] = abs(found.median - 1)
        verdicts.append(found.verdict)
    worst = max(off, key=off.get)
    within = sum(o <= ALLOWED for o in off.values())
    return Row(
        "A/A",
        f"placement of buffers, {len(shapes)} shapes",
        f"off by {off[worst]:.2%} at most ({worst[0]} × {worst[1]}), {within} of {len(off)} within "
        f"{ALLOWED:.1%}",
        f"{ALLOWED:.1%} in each",
        True if within == len(off) else None if "inconclusive" in verdicts else False,
        f"{statistics.median(off.values()):.2%} in the median, {verdicts.count('inconclusive')} inconclusive",
    )


def planted(
    device: str, seed: int, reporter: Reporter, step: Callable[[str], None], shapes: Shapes = SHAPES
) -> Row:
    """How a slow-down of PLANTED, multiplied onto the samples of one of two equal implementations, is judged
    where the band of "same" is SAME_WITHIN."""
    verdicts = []
    for number, shape in enumerate(shapes):
        step(f"planted {PLANTED:.0%} at {shape[0]} × {shape[1]}, {number + 1} of {len(shapes)}")
        verdicts.append(
            _compared(device, shape, seed + number, PLANTED, SAME_WITHIN, reporter).speedup.verdict
        )
    found, wrong = verdicts.count("slower"), sum(v in ("faster", "same") for v in verdicts)
    return Row(
        "planted",
        f"{PLANTED:.0%} slower, same within {SAME_WITHIN:.1%}",
        f"found in {found} of {len(verdicts)} runs, {wrong} the wrong way round",
        f"{FOUND:.0%} found, none the wrong way round",
        False if wrong else found >= FOUND * len(verdicts) or None,
        f"{verdicts.count('inconclusive')} inconclusive",
    )


class Slower(Sampler):
    """A sampler whose samples are longer by a share."""

    def __init__(self, sampler: Sampler, share: float):
        self.mode, self.cost_ms, self._sampler, self._factor = (
            sampler.mode,
            sampler.cost_ms,
            sampler,
            1 + share,
        )

    def take(self, count: int, look=None) -> list[float]:
        return [ms * self._factor for ms in self._sampler.take(count, look)]

    def moved(self, shift: int) -> None:
        self._sampler.moved(shift)


def _compared(
    device: str, shape: tuple[int, int], seed: int, share: float, within: float, reporter: Reporter
) -> Record:
    """The record of a softmax over one that is equal to it, its samples longer by ``share``; "same" is
    ``within`` so much."""

    class Planted(Trial):
        def _sampler(self, c, mode, flush, l2_bytes):
            sampler = super()._sampler(c, mode, flush, l2_bytes)
            return Slower(sampler, share) if sampler and c.name == "b" else sampler

    class PlantedBench(Bench):
        trial = Planted

    case, dtype = {"rows": shape[0], "cols": shape[1]}, "float32" if device == "cpu" else "float16"
    band = {"same_within": within, "budget_s": _BUDGET_S, "seed": seed}
    spec = BenchSpec("softmax", ("a", "b"), (case,), "a", dtype, device, "warm", **band)
    functions = {"a": lambda x: torch.softmax(x, -1), "b": lambda x: torch.softmax(x, -1)}
    return b_over_a(spec, functions, reporter, PlantedBench)
