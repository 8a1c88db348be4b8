"""Whether two runs may be compared: which implementations have the same source, and what else differs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusescope.analysis.compare import columns, source_code, workloads
from fusescope.analysis.compare.columns import Row, Source
from fusescope.analysis.compare.control import Control, control
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
_NAMED = 4


@dataclass(frozen=True)
class Answer:
    """Whether a difference between two runs is the code's, of the implementations that both timed.

    why_not: empty where they may be compared. same, edited, unknown: implementations whose source is the
    same (or compiles to the same machine code), differs, or is not recorded; peers count by the versions of
    torch and its CUDA. control: how far those that are the same are apart on the same workloads; None
    without one, or on unlike devices. part: what is said first where a verdict is had of some rows alone.
    """

    why_not: tuple[str, ...]
    same: tuple[str, ...]
    edited: tuple[str, ...]
    unknown: tuple[str, ...]
    cautions: tuple[str, ...]
    control: Control | None
    part: str = ""

    @property
    def yes(self) -> bool:
        return not self.why_not

    @property
    def left_open(self) -> float:
        """What a failed check leaves open of any ratio of the two runs (logarithmic)."""
        return self.control.allowance if self.control else 0.0

    @property
    def text(self) -> str:
        """The answer as sentences, yes or no first, then whether its check failed; without the cautions."""
        if not self.yes:
            return f"No: {'; '.join(self.why_not)}."
        parts = [self.part] if self.part else []
        failed = self.control is not None and self.control.failed
        if failed:
            said = self.control.text.replace("Check", "check", 1)
            parts.append(f"{'But the' if self.part else 'Yes, but the'} {said}.")
        if self.same:
            own = _named(self.same)
            parts.append(f"Same source: {own}." if failed else f"Yes for {own} (same source).")
        if self.edited:
            verb = "differs" if len(self.edited) == 1 else "differ"
            who = ", ".join(self.edited)
            parts.append(
                f"{'' if self.same else 'Yes: '}{who} {verb} in source: a difference there is the code's."
            )
        if not (self.same or self.edited):
            parts.append("Unknown: no implementation that both timed has a recorded source.")
        return " ".join(parts)


def judge(base: Source, other: Source, left_out: Collection[str] = (), names: Collection[str] = ()) -> Answer:
    """Whether ``other`` may be compared with ``base``, their cases matched without the keys left out.
    ``names``: what sentences call the two; else their ids."""
    rows = [r for r in columns.compare([base, other], "run", left_out).rows if r.cells[1].ratio]
    equal = [row for row in rows if row.cells[1].verdict]
    sources = _sources(base, other, {(row.op, row.impl) for row in equal or rows})
    checked = [row.cells[1].ratio.median for row in equal if row.impl in sources["same"]]
    return Answer(
        why_not=tuple(_why_not(base, other, left_out, rows, sources["edited"])),
        **{name: tuple(map(short, impls)) for name, impls in sources.items()},
        cautions=(*_unrecorded(sources["unknown"]), *differences(base, other, names)),
        control=control(checked),
        part=_part(rows) if equal else "",
    )


def groups(
    sources: Sequence[Source], answers: Sequence[Answer], left_out: Collection[str] = ()
) -> list[list[int]]:
    """Which of the runs may be compared with one another, by their places: the base with those that
    ``answers`` (of the others, over the base) allow, and the rest in the same way."""
    found = [[0, *(n for n, one in enumerate(answers, 1) if one.yes)]]
    rest = [n for n in range(1, len(sources)) if n not in found[0]]
    while rest:
        first, *others = rest
        found.append([first, *(n for n in others if judge(sources[first], sources[n], left_out).yes)])
        rest = [n for n in others if n not in found[-1]]
    return found


def _why_not(
    base: Source, other: Source, left_out: Collection[str], rows: list[Row], edited: list[str]
) -> list[str]:
    """Why no row has a verdict on code; empty where one has."""
    found = []
    if base.run.device_name != other.run.device_name:
        code = f" or that of the code of {_named(tuple(map(short, edited)))}" if edited else ""
        found.append(
            f"the devices differ ({base.run.device_name} against {other.run.device_name}), so a difference "
            f"may be the hardware's{code}"
        )
    if not rows:
        found.append(_unmatched(base, other, left_out))
    elif all(row.cells[1].unlike and row.cells[1].unlike.workload for row in rows):
        found.append(f"{_workloads(rows)}, so a ratio of their times is no speed-up")
    return found


def _part(rows: list[Row]) -> str:
    """ "Yes in 7 of 47 rows; no in 40: the workloads differ (heads 12 against 8)."; "" where all have one
    workload."""
    unlike = [row for row in rows if row.cells[1].unlike]
    if not unlike:
        return ""
    counts = f"Yes in {len(rows) - len(unlike):,} of {len(rows):,} rows; no in {len(unlike):,}"
    return f"{counts}: {_workloads(unlike)}."


def _workloads(rows: list[Row]) -> str:
    differ = workloads.together(row.cells[1].unlike for row in rows).workload
    return f"the workloads differ ({'; '.join(f'{key} {a} against {b}' for key, a, b in differ)})"


def differences(base: Source, other: Source, names: Collection[str] = ()) -> list[str]:
    """What differs about how two runs were measured, besides device and sources: one sentence each."""
    left, right = base.run, other.run
    found = _units(base, other)
    for key, name in _FACTS.items():
        found += _differ(name, left.environment.get(key), right.environment.get(key))
    for key, name in _SETTINGS.items():
        found += _differ(name, left.spec.get(key), right.spec.get(key))
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
    before, now = _hashes(base.records), _hashes(other.records)
    found: dict[str, list[str]] = {"same": [], "edited": [], "unknown": []}
    for op, impl in sorted(measured):
        sides = (base.run, before.get((op, impl))), (other.run, now.get((op, impl)))
        kind = source_code.compared(op, impl, *sides)
        if impl not in found[kind]:
            found[kind].append(impl)
    for kind in ("same", "unknown"):  # of several operators one edited source is enough
        found[kind] = [impl for impl in found[kind] if impl not in found["edited"]]
    return found


def _unmatched(base: Source, other: Source, left_out: Collection[str]) -> str:
    """Why no time can be compared, and what to leave out so that some can."""
    hint = ""
    for key, (ratios, verdicts) in list(columns.helpful([base, other], left_out).items())[:1]:
        hint = f"; leave out “{key}” to match {ratios:,}"
        if not verdicts:
            hint = f"; {ratios:,} match with “{key}” left out, but they are other workloads: no verdict"
    apart = workloads.apart(base.records, other.records)
    return f"the two runs have no case in common that both timed{f' ({apart})' if apart else ''}{hint}"


def _unrecorded(impls: Sequence[str]) -> list[str]:
    """Whose difference may be anybody's: their verdicts count in the result as those of known code do."""
    if not impls:
        return []
    names, more = [short(impl) for impl in impls[:_NAMED]], len(impls) - _NAMED
    who = f"{', '.join(names)} and {more} more" if more > 0 else ", ".join(names)
    return [f"no source is recorded for {who}: whether a difference there is the code's is not known"]


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
