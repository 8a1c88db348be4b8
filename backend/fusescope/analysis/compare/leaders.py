"""Which implementations of one case may be the fastest, from their own times: the same whatever they are
compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusescope.analysis.compare import ratios
from fusescope.core.records import HEADLINE, Record, Time


def ranked(records: Iterable[Record]) -> list[Record]:
    """The correct records of one case with a time, fastest first: by the time of the mode that was compared,
    so that times, order and intervals come from the same samples."""
    timed = [r for r in records if r.status == "ok" and r.ms]
    return sorted(timed, key=lambda r: compared_time(r).median)


def leaders(records: Iterable[Record]) -> list[Record]:
    """Of one case the record with the lowest time, and behind it each that is not proven slower. One alone is
    proven fastest; several are a tie, within the band of the same or because the samples do not tell.

    ``records``: as they were measured, not over another baseline: what was sampled in pairs is compared in
    pairs.
    """
    first, *rest = ranked(records) or [None]
    return [first, *(r for r in rest if not proven_faster(first, r))] if first else []


def proven_faster(record: Record, other: Record) -> bool:
    """Whether a record is faster than another one of its case, by the interval of ``ratios.over``."""
    return _verdict(record, other) == "faster"


def undecided(tops: Sequence[Record]) -> str:
    """The verdict between several ``leaders`` of a case, as charts and tables give it to two of them: "same"
    where each is within the band around the first, else "inconclusive"."""
    first, *rest = tops
    return "same" if all(_verdict(first, r) == "same" for r in rest) else "inconclusive"


def _verdict(record: Record, other: Record) -> str | None:
    """Of a record over another one of its case; None where they have no time in common."""
    mode = next((m for m in HEADLINE if record.time_of(m) and other.time_of(m)), None)
    found = ratios.over(other, record, mode) if mode else None
    return found and found.verdict


def compared_time(record: Record) -> Time | None:
    """The time that belongs to the speed-up: that of the mode which was compared."""
    return record.time_of(record.speedup.of) if record.speedup else record.time
