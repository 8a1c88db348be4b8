"""Layouts of a model over more devices than a run had, from what it measured on one device and between its
ranks. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fusescope.analysis.scaling import compute, links, predict
from fusescope.analysis.scaling.predict import Prediction, Work
from fusescope.core.records import Record
from fusescope.models.describe import catalog, layouts

COUNTS = tuple(2**k for k in range(1, 11))
"""2 … 1,024 devices."""


@dataclass(frozen=True)
class Basis:
    """What predictions of one model, case and attention are based on."""

    name: str
    case: Mapping[str, Any]
    dtype: str
    attention: str
    work: Work
    compute: compute.Compute
    links: Mapping[str, links.Link]

    def at(self, layout: layouts.Layout, micro_batches: int) -> Prediction:
        """One layout; ValueError where the model does not take it."""
        layouts.check(self.name, self.case, layout, micro_batches, self.attention)
        return predict.predict(
            self.work, layout.tp, layout.pp, layout.dp, micro_batches, self.compute, self.links
        )

    def best(
        self, ranks: int, micro_batches: Iterable[int], memory_bytes: float | None = None
    ) -> list[Prediction]:
        """The layouts of so many ranks that fit into the memory of each, the fastest first, each with the
        best number of micro-batches; empty where none does."""
        found: dict[tuple[int, int, int], Prediction] = {}
        for pieces in micro_batches:
            for layout in layouts.fitting(self.name, self.case, ranks, pieces, self.attention):
                row, key = self.at(layout, pieces), (layout.tp, layout.pp, layout.dp)
                if memory_bytes is not None and row.memory_bytes > memory_bytes:
                    continue
                if key not in found or row.ms < found[key].ms:
                    found[key] = row
        return sorted(found.values(), key=lambda p: p.ms)

    def scheme(self, scheme: str, ranks: int, micro_batches: int) -> Prediction | None:
        """One kind of parallelism alone ("tp", "pp", "dp") over so many ranks; None where it cannot be."""
        try:
            return self.at(layouts.Layout(**{scheme: ranks}), micro_batches)
        except (TypeError, ValueError):
            return None

    def helps(self, prediction: Prediction) -> list[predict.Help]:
        return predict.helps(self.work, prediction, self.compute, self.links)


def basis(
    name: str,
    case: Mapping[str, Any],
    dtype: str,
    attention: str,
    environment: Mapping[str, Any],
    given: Mapping[str, links.Link] | None = None,
) -> Basis:
    """From the environment of a run of the kind ``parallel``; ``given``: links instead of the run's.
    ValueError in one sentence where the run lacks what a prediction needs."""
    points, launches = _points(case, attention, environment)
    if not points:
        raise ValueError(
            f"a prediction needs a run that timed a rank's share of {name} with {attention} on this case on "
            "one device (fusescope parallel measures it unless --no-probes is given)"
        )
    found = dict(given or {})
    if not found:
        measured = environment.get("links")
        if not isinstance(measured, Mapping) or not isinstance(measured.get("links"), list):
            raise ValueError(
                "a prediction needs the latency and bandwidth of collectives: a run of two ranks or more "
                "that measured them, or both as given numbers"
            )
        sizes = measured.get("points")
        found = links.of_json(measured["links"], sizes if isinstance(sizes, list) else ())
    if missing := [c for c in ("all_reduce", "send_recv") if c not in found]:
        raise ValueError(f"the run did not measure {' and '.join(missing)}")
    return Basis(
        name,
        dict(case),
        dtype,
        attention,
        layouts.work(name, case, dtype),
        compute.fit(points, launches),
        found,
    )


@dataclass(frozen=True)
class Compared:
    """A layout that the run measured, and what is predicted for it from one device and the collectives;
    host_bound: that is a lower bound (see Prediction)."""

    impl: str
    scaling: str
    case: Mapping[str, Any]
    measured_ms: float
    predicted_ms: float
    host_bound: bool

    @property
    def error(self) -> float | None:
        """Of the prediction: 0.05 where it is 5 % above what was measured; None of a lower bound."""
        return None if self.host_bound else self.predicted_ms / self.measured_ms - 1

    def to_json(self) -> dict:
        return asdict(self) | {"case": dict(self.case), "error": self.error}


def compared(records: Iterable[Record], environment: Mapping[str, Any]) -> list[Compared]:
    """Every time of several devices in a run of the kind ``parallel`` with its prediction; none of a case
    and attention of which the run lacks what a prediction needs."""
    found = []
    for r in records:
        own = (r.extra or {}).get("parallel")
        if r.status != "ok" or not own or own["ranks"] == 1:
            continue
        try:
            base = basis(catalog.named(r.op), r.case, r.dtype, own["attention"], environment)
            at = base.at(layouts.Layout(own["tp"], own["pp"], own["dp"]), own["micro_batches"])
        except ValueError:
            continue
        found.append(Compared(r.impl, own["scaling"], r.case, r.ms, at.ms, at.host_bound))
    return found


def _points(case, attention: str, environment: Mapping[str, Any]):
    """(tp, batch, ms) of the same case, whose batch may be another, and {(tp, batch): ms of launching}."""
    found: dict[tuple[int, int], float] = {}
    launches: dict[tuple[int, int], float] = {}
    probes = environment.get("probes")
    for probe in probes if isinstance(probes, list) else ():
        try:
            if {**probe["case"], "batch": 0} != {**case, "batch": 0}:
                continue
            for p in probe["points"]:
                if p["attention"] == attention:
                    at = int(p["tp"]), int(p["batch"])
                    found[at] = float(p["ms"])
                    if p.get("host_ms") is not None:
                        launches[at] = float(p["host_ms"])
        except (KeyError, TypeError, ValueError):
            raise ValueError("the run's times of a rank's share are not readable") from None
    return [(tp, batch, ms) for (tp, batch), ms in found.items()], launches
