"""Records of a parallel comparison as series over the number of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.analysis.scaling import laws
from fusescope.core.records import Record

_WORDS = {"tp": "tensor parallel", "pp": "pipeline", "dp": "data parallel"}


@dataclass(frozen=True)
class Series:
    """Times of one attention and scheme over the devices, one device first. scheme: "tp", "pp", "tp.pp", …;
    scaling: strong (the same work) or weak (a batch in proportion); points: (devices, record)."""

    attention: str
    scheme: str
    scaling: str
    case: Mapping[str, Any]
    points: tuple[tuple[int, Record], ...]

    @property
    def title(self) -> str:
        """ "sdpa, tensor parallel"."""
        return f"{self.attention}, {' + '.join(_WORDS[w] for w in self.scheme.split('.'))}"

    def speedups(self) -> list[tuple[int, float]]:
        """Over one device; of weak scaling the work counts, too."""
        found = []
        for n, r in self.points:
            # the single device of the same rounds, where the record has it
            single = r.extra["parallel"].get("single_ms") or self.points[0][1].ms
            found.append((n, (n if self.scaling == "weak" else 1) * single / r.ms))
        return found

    def efficiency(self) -> list[tuple[int, float]]:
        """Speed-up over devices, 0 … 1."""
        return [(n, s / n) for n, s in self.speedups()]

    def fit(self) -> laws.Fit:
        return laws.fit("gustafson" if self.scaling == "weak" else "amdahl", self.speedups())


def series(records: Iterable[Record]) -> list[Series]:
    """Every series that has a time on one device and on more, cases and schemes in the order met."""
    timed = [(r, p) for r in records if r.status == "ok" and (p := (r.extra or {}).get("parallel"))]
    found = []
    for single, own in timed:
        if own["ranks"] > 1 or own["scaling"] != "strong":
            continue
        same = [(r, p) for r, p in timed if p["attention"] == own["attention"] and p["ranks"] > 1]
        keys = dict.fromkeys((_scheme(p), p["scaling"]) for _, p in same)
        # weak points may be the strong ones of another case with that batch
        keys |= {(scheme, "weak"): None for scheme, _ in keys}
        for scheme, scaling in sorted(keys, key=lambda k: (k[1], k[0])):
            points = {
                p["ranks"]: r
                for r, p in same
                if _scheme(p) == scheme and _fits(r, single, p["ranks"] if scaling == "weak" else 1)
            }
            if points:
                rows = ((1, single), *sorted(points.items()))
                found.append(Series(own["attention"], scheme, scaling, single.case, rows))
    return found


def _scheme(parallel: Mapping[str, Any]) -> str:
    return ".".join(word for word in _WORDS if parallel[word] > 1)


def _fits(record: Record, single: Record, times: int) -> bool:
    """Whether a record's case is the single one's with a batch so many times as large."""
    wanted = {**single.case, "batch": single.case["batch"] * times}
    alike = (record.op, record.dtype, record.device) == (single.op, single.dtype, single.device)
    return alike and dict(record.case) == wanted
