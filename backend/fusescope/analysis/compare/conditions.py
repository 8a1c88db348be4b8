"""Whether two runs may be compared: which implementations have the same source, and what else differs."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from dataclasses import dataclass

from fusescope.analysis.compare import columns
from fusescope.analysis.compare.columns import Source
from fusescope.core import same_code
from fusescope.core.machine.conditions import marks
from fusescope.core.records import Record, short

_FACTS = {  # of the environment: whether equal figures can be expected at all hangs on these
    "driver": "driver",
    "torch": "torch",
    "torch_cuda": "torch's CUDA",
    "nvcc": "nvcc",
    "gxx": "g++",
    "python": "Python",
    "cpu_name": "CPU",
    "cpu_threads": "CPU threads",
}
_SETTINGS = {"cache": "cache mode", "baseline": "baseline", "seed": "seed of the inputs"}
_LIBRARIES = ("torch", "torch_cuda")
"""What a peer's code hangs on."""
_DRIFT = 0.02
"""Median difference of implementations with the same source from which on the conditions are in doubt."""
_NAMED = 4


@dataclass(frozen=True)
class Answer:
    """Whether a difference between two runs is the code's, of the implementations that both timed.

    why_not: empty where they may be compared. same, edited, unknown: implementations whose source is the
    same (or compiles to the same machine code), differs, or is not recorded; peers count by the versions of
    torch and its CUDA. control: the median and the largest difference of those that are the same, as ratios
    - 1 >= 0, and of how many rows; None without one, or on unlike devices.
    """

    why_not: tuple[str, ...]
    same: tuple[str, ...]
    edited: tuple[str, ...]
    unknown: tuple[str, ...]
    cautions: tuple[str, ...]
    control: tuple[float, float, int] | None

    @property
    def yes(self) -> bool:
        return not self.why_not

    @property
    def text(self) -> str:
        """The answer as sentences, yes or no first; without the cautions."""
        if not self.yes:
            return f"No: {'; '.join(self.why_not)}."
        parts = []
        if self.same:
            parts.append(f"Yes for {_named(self.same)} (same source).")
        if self.edited:
            verb = "differs" if len(self.edited) == 1 else "differ"
            who = ", ".join(self.edited)
            parts.append(
                f"{'' if self.same else 'Yes: '}{who} {verb} in source: a difference there is the code's."
            )
        if self.unknown:
            verb = "has" if len(self.unknown) == 1 else "have"
            head = "" if self.same or self.edited else "Unknown: "
            parts.append(f"{head}{', '.join(self.unknown)} {verb} no recorded source in one of the runs.")
        return " ".join(parts)


def judge(base: Source, other: Source, left_out: Collection[str] = (), names: Collection[str] = ()) -> Answer:
    """Whether ``other`` may be compared with ``base``, their cases matched without the keys left out.
    ``names``: what sentences call the two; else their ids."""
    rows = columns.compare([base, other], "run", left_out).rows
    both = [row for row in rows if row.cells[1].ratio]
    why_not = []
    if base.run.device_name != other.run.device_name:
        why_not.append(
            f"the devices differ ({base.run.device_name} against {other.run.device_name}), so a difference "
            "may be the hardware's"
        )
    if not both:
        why_not.append(_unmatched(base, other, left_out))
    sources = _sources(base, other, {(row.op, row.impl) for row in both})
    alike = base.run.device_name == other.run.device_name  # else a control measures the hardware
    control = [row.cells[1].ratio.median for row in both if alike and row.impl in sources["same"]]
    answer = Answer(
        why_not=tuple(why_not),
        **{name: tuple(map(short, impls)) for name, impls in sources.items()},
        cautions=(),
        control=_spread(control),
    )
    cautions = (*_drift(answer), *differences(base, other, left_out, names))
    return Answer(**(vars(answer) | {"cautions": cautions}))


def differences(
    base: Source, other: Source, left_out: Collection[str] = (), names: Collection[str] = ()
) -> list[str]:
    """What differs about how two runs were measured, besides device and sources: one sentence each."""
    left, right = base.run, other.run
    found = _units(base, other)
    for key, name in _FACTS.items():
        found += _differ(name, left.environment.get(key), right.environment.get(key))
    for key, name in _SETTINGS.items():
        found += _differ(name, left.spec.get(key), right.spec.get(key))
    for key in left_out:
        found += _differ(f"{key} (left out)", *(_values(s, key) for s in (base, other)))
    found += _clocks(base, other)
    for source, name in zip((base, other), names or (left.id, right.id), strict=True):
        run = source.run
        found += _marked(source, name)
        if run.environment.get("others_on_gpu"):
            found.append(f"other processes used the GPU during {name}")
        if run.status != "done":
            found.append(f"{name} is {run.status}: its records may not be all there")
    return found


def _marked(source: Source, name: str) -> list[str]:
    """What marks records of a run: its clocks in one sentence, not one for each difference."""
    states = [r.conditions for r in source.records if r.conditions]
    off = [abs(state.clock_difference) for state in states if state.clock_note]
    notes = {state.clock_note for state in states}
    found = [m for m in dict.fromkeys(m for r in source.records for m in marks(r)) if m not in notes]
    found = [f"in part of {name}: {m}" for m in found]
    if off:
        baseline = source.run.spec.get("baseline")
        found.append(
            f"in {len(off)} of {len(source.records)} records of {name} the SM clock differs by up to "
            f"{100 * max(off):.1f} % from that of {name}'s own baseline"
            + (f", {short(str(baseline))}" if baseline else "")
        )
    return found


def _sources(base: Source, other: Source, measured: set[tuple[str, str]]) -> dict[str, list[str]]:
    """Implementations that both runs timed, by what is known of their sources."""
    libraries = [[s.run.environment.get(key) for key in _LIBRARIES] for s in (base, other)]
    peers = "unknown" if not libraries[0][0] or not libraries[1][0] else "same"
    peers = "edited" if peers == "same" and libraries[0] != libraries[1] else peers
    before, now = _hashes(base.records), _hashes(other.records)
    found: dict[str, list[str]] = {"same": [], "edited": [], "unknown": []}
    for op, impl in sorted(measured):
        a, b = before.get((op, impl)), now.get((op, impl))
        if a is None and b is None:
            kind = "unknown" if ".py:" in impl else peers
        elif a is None or b is None:
            kind = "unknown"
        else:
            kind = "same" if same_code.same(op, impl, a, b) else "edited"
        if impl not in found[kind]:
            found[kind].append(impl)
    for kind in ("same", "unknown"):  # of several operators one edited source is enough
        found[kind] = [impl for impl in found[kind] if impl not in found["edited"]]
    return found


def _unmatched(base: Source, other: Source, left_out: Collection[str]) -> str:
    """Why no time can be compared, and what to leave out so that some can."""
    helps = list(columns.helpful([base, other], left_out).items())[:1]
    hint = "".join(f"; leave out “{key}” to match {n}" for key, n in helps)
    return f"the two runs have no case in common that both timed{hint}"


def _spread(ratios: list[float]) -> tuple[float, float, int] | None:
    apart = [max(r, 1 / r) - 1 for r in ratios]
    return (statistics.median(apart), max(apart), len(apart)) if apart else None


def _drift(answer: Answer) -> list[str]:
    """What implementations of the same source, which should not differ, say about the conditions."""
    if not answer.control or answer.control[0] <= _DRIFT:
        return []
    return [
        f"implementations with the same source differ by {100 * answer.control[0]:.2g} % in the median: "
        "smaller differences of the others say nothing"
    ]


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} implementations"


def _differ(name: str, a, b) -> list[str]:
    return [] if a == b else [f"{name}: {_shown(a)} against {_shown(b)}"]


def _shown(value) -> str:
    return "unknown" if value is None else str(value)


def _units(base: Source, other: Source) -> list[str]:
    """Two GPUs of one model are rarely equally fast."""
    a, b = (s.run.environment.get("device_uuid") for s in (base, other))
    if a == b or base.run.device_name != other.run.device_name:
        return []
    if a is None or b is None:
        return [f"perhaps another unit of {base.run.device_name}: which it was is recorded in one of them"]
    return [f"another unit of {base.run.device_name} ({a[:12]} against {b[:12]})"]


def _values(source: Source, key: str) -> str | None:
    """What a key that is left out is in a run."""
    if key == "device":
        return ", ".join(dict.fromkeys(r.device.partition(":")[0] for r in source.records)) or None
    found = [r.dtype if key == "dtype" else str(r.case.get(key, "unknown")) for r in source.records]
    return ", ".join(dict.fromkeys(found)) or None


def _clocks(base: Source, other: Source) -> list[str]:
    """SM clocks seen while sampling, where both runs recorded them, if their medians are more than 2 %
    apart."""
    x, y = base.sm_mhz, other.sm_mhz
    if x is None or y is None:
        return [] if x == y else [f"SM clock: {_megahertz(x)} against {_megahertz(y)}"]
    apart = abs(x - y) > 0.02 * max(x, y)
    return [f"SM clock (median): {_megahertz(x)} against {_megahertz(y)}"] if apart else []


def _megahertz(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} MHz"


def _hashes(records: tuple[Record, ...]) -> dict[tuple[str, str], str]:
    return {(r.op, r.impl): r.source_hash for r in records if r.source_hash}
