"""Whether two profiles may be compared: whether they show the same work on one kind of device, and what else
differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.analysis.compare import conditions, workloads
from fusescope.analysis.compare.columns import Source
from fusescope.core.machine.conditions import NO_DEVICE, UNNAMED_DEVICE
from fusescope.core.records import Run, short

_MODEL = "model:"
_TOOLS = {"trace": "torch.profiler", "ncu": "Nsight Compute", "nsys": "Nsight Systems"}


@dataclass(frozen=True)
class Answer:
    """Whether two profiles, a and b, may be compared. work: whether both did the same, None where one does
    not say what it did; devices: their names where they differ; text: the answer as a sentence, yes or no
    first; cautions: what else differs about how they were made."""

    work: bool | None
    devices: tuple[str, str] | None
    text: str
    cautions: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether a ratio of their times is a verdict, as far as is known."""
        return self.work is not False and self.devices is None


def judge(a: Run, b: Run, steps: tuple[int, int] = (0, 0)) -> Answer:
    """Whether ``b`` may be compared with ``a``. Execution modes and implementations may differ: they are what
    is compared. steps: how many each profile has, 0 where it marks none."""
    names = (a.device_name, b.device_name)
    known = not {NO_DEVICE, UNNAMED_DEVICE} & set(names)
    devices = names if known and names[0] != names[1] else None
    unknown = [letter for letter, run in (("a", a), ("b", b)) if not _told(run.spec)]
    differ = () if unknown else _differ(a.spec, b.spec)
    why_not = []
    if differ:
        said = "; ".join(f"{key} {x} against {y}" for key, x, y in differ)
        why_not.append(f"the work differs ({said}), so a ratio of their times is no speed-up")
    if devices:
        hardware = f"the devices differ ({devices[0]} against {devices[1]})"
        why_not.append(f"{hardware}, so a difference may be the hardware's")
    if why_not:
        text = f"No: {'; '.join(why_not)}."
    elif unknown:
        who = "neither says" if unknown[1:] else f"{unknown[0]} does not say"
        text = f"Unknown: {who} what work was done."
    else:
        text = f"Yes: the same work on {names[0]}, {_modes(a.spec, b.spec)}."
    cautions = () if unknown or why_not else _cautions(a, b, steps)
    return Answer(None if unknown else not differ, devices, text, cautions)


def _told(spec: Mapping[str, Any]) -> bool:
    """Whether a specification says what was computed: an imported file's does not."""
    return bool(spec.get("op")) and isinstance(spec.get("case"), Mapping)


def _differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """What differs of the work; of different operators only the parameters that both have."""
    ops, cases = [str(s["op"]) for s in (a, b)], [s["case"] for s in (a, b)]
    dtypes = [str(s.get("dtype") or "unknown") for s in (a, b)]
    if ops[0] == ops[1]:
        return workloads.of_specs(*zip(cases, dtypes, strict=True))
    shared = [k for k in cases[0] if k in cases[1]]
    cases = [{k: case[k] for k in shared} for case in cases]
    kind = "model" if all(op.startswith(_MODEL) for op in ops) else "operator"
    named = [op.replace(_MODEL, "" if kind == "model" else "model ") for op in ops]
    return (kind, *named), *workloads.of_specs(*zip(cases, dtypes, strict=True))


def _modes(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    first, second = (short(str(s.get("impl") or "unknown")) for s in (a, b))
    return f"as {first} in both" if first == second else f"as {first} (a) and {second} (b)"


def _cautions(a: Run, b: Run, steps: tuple[int, int]) -> tuple[str, ...]:
    found = []
    if a.kind != b.kind:
        found.append(f"profiler: {' against '.join(_TOOLS.get(run.kind, run.kind) for run in (a, b))}")
    if steps[0] != steps[1]:
        found.append(f"steps: {steps[0]:,} against {steps[1]:,}; figures are per step")
    if len({bool(run.spec.get("memory")) for run in (a, b)}) > 1:
        one = "a" if a.spec.get("memory") else "b"
        found.append(f"memory was recorded in {one} alone, which slows down the host")
    return (*found, *conditions.differences(Source(a, ()), Source(b, ()), ("a", "b")))
