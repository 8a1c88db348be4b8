"""The least time of a call at the rates of its device: of its arithmetic and of its minimum traffic, and how
near to it a record comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusescope import models, ops
from fusescope.analysis import roofline
from fusescope.charts import verdicts
from fusescope.core.records import Record
from fusescope.masks import counting
from fusescope.models.describe.modes import MODES
from pages._ui.app import cached_chart
from pages._ui.limits import rates

MEMORY, ARITHMETIC = "memory", "arithmetic"


@dataclass(frozen=True)
class Least:
    """What one call takes at least. flop: the dtype's arithmetic; moved: bytes; peaks: how many times the
    dtype's arithmetic rate it may reach."""

    flop: float
    moved: float
    peaks: float
    rates: rates.Rates

    @property
    def ms(self) -> float:
        return roofline.least_ms(self.flop / self.peaks, self.moved, self.rates.ceiling)

    @property
    def bound(self) -> str:
        """Which of the two takes longer."""
        return MEMORY if self.ms > self._arithmetic_ms else ARITHMETIC

    @property
    def _arithmetic_ms(self) -> float:
        return roofline.least_ms(self.flop / self.peaks, 0.0, self.rates.ceiling)


@dataclass(frozen=True)
class Share:
    """How much of the speed that the rates allow a record reaches (1: all of it), and the least time."""

    share: float
    least: Least


def of(
    op: str, case: Mapping[str, Any], dtype: str, found: rates.Rates, quantised: str | None = None
) -> Least:
    """The ``Least`` of a call; quantised: as of ``models.cost``. ValueError where there is no such case."""
    flop, moved, peaks = cached_chart.once(
        ("least", op, repr(dict(case)), dtype, quantised), lambda: _work(op, case, dtype, quantised)
    )
    return Least(flop, moved, peaks, found)


def share(record: Record, device_name: str) -> Share | None:
    """None of a record without a time, on a device whose rates are unknown, or of a case that cannot be
    counted: too large, a mask of a file that is gone, a model that is not known here."""
    found, time = rates.of(device_name, record.dtype), verdicts.compared_time(record)
    if found is None or time is None:
        return None
    mode = MODES.get(record.impl) if record.op.startswith("model:") else None
    try:
        if not counting.countable(record.case):
            return None
        least = of(record.op, record.case, record.dtype, found, mode and mode.quantised)
    except (ValueError, OSError):
        return None
    return Share(least.ms / time.median, least)


def of_memory(record: Record, device_name: str) -> float | None:
    """How much of memory's limit a record of a model reaches, where memory is its limit: of a decoding one as
    it was recorded, by the rate that its own run measured; None elsewhere."""
    found = share(record, device_name)
    if found is None or found.least.bound != MEMORY:
        return None
    recorded = ((record.extra or {}).get("generation") or {}).get("roof_share")
    return recorded or found.share


def _work(op: str, case: Mapping[str, Any], dtype: str, quantised: str | None) -> tuple[float, float, float]:
    if op.startswith("model:"):
        name = models.named(op)
        cost = models.cost(name, models.validate(name, case), dtype, quantised)
    else:
        operator = ops.load(op)
        cost = operator.cost(operator.validate(dict(case)), dtype)
    return cost.flop_effective, cost.bytes, cost.peaks
