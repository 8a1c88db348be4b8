"""Wrong kernels: every file of measure/wrong, checked as any user's implementation is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

from fusescope.core.discovery import load_part, module_names
from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Collect, Reporter
from fusescope.measure import wrong
from fusescope.measure.candidate import candidates
from fusescope.measure.selfcheck.row import Row
from fusescope.measure.subject import Operator
from fusescope.measure.trial import Trial

SHARE = 0.99  # of the seeds that each kind has to be caught on
PARTS = ("ON", "DTYPES", "wrong")


@dataclass(frozen=True)
class Kind:
    """A wrong kernel on one operator and dtype."""

    name: str
    op: str
    dtype: str

    @property
    def module(self) -> ModuleType:
        return load(self.name)


def names() -> list[str]:
    """The wrong kernels there are."""
    return module_names(wrong)


def load(name: str) -> ModuleType:
    """A wrong kernel's file, checked for completeness; TypeError naming missing parts."""
    return load_part(wrong, name, PARTS, "wrong kernel")


def kinds() -> Iterator[Kind]:
    """Every wrong kernel on every operator and dtype that it says."""
    for name in names():
        yield from (Kind(name, op, dtype) for op in load(name).ON for dtype in load(name).DTYPES)


def caught(kind: Kind, device: str, seed: int) -> str | None:
    """What the check says of it on inputs of this seed; None where it passes for right."""
    module = kind.module
    impl = f"{module.__file__}:wrong"
    subject = Operator(kind.op)
    on = getattr(module, "ON_GPU", module.ON) if device.startswith("cuda") else module.ON
    values = subject.validate(on[kind.op])
    spec = BenchSpec(kind.op, (impl,), (values,), impl, kind.dtype, device, "warm", budget_s=1.0, seed=seed)
    trial = Trial(spec, subject, values, Collect())
    several = candidates(subject, [impl], device, None)
    trial.check(several, lambda text: None)
    if getattr(module, "TIMED", False) and several[0].status is None:
        trial.sample(several, "eager", None, None)
    return several[0].reason if several[0].status in ("wrong", "error") else None


def rows(device: str, seeds: range, reporter: Reporter, step: Callable[[str], None]) -> list[Row]:
    """A line for each wrong kernel: on how many seeds it was caught, over its operators and dtypes."""
    found = []
    for name in names():
        step(f"wrong kernels: {name}")
        missed, count = [], 0
        for kind in kinds_of(name):
            for seed in seeds:
                reporter.check()
                reporter.doing(f"{name} {kind.op} {kind.dtype}", name, 120.0)
                count += 1
                if not caught(kind, device, seed):
                    missed.append(f"{kind.op} {kind.dtype} seed {seed}")
        share = 1 - len(missed) / count
        note = f"missed on {', '.join(missed[:5])}" if missed else ""
        figure = f"caught on {count - len(missed)} of {count}"
        found.append(Row("wrong kernels", name, figure, f"{SHARE:.0%} of seeds", share >= SHARE, note))
    return found


def kinds_of(name: str) -> list[Kind]:
    """One wrong kernel on its operators and dtypes."""
    return [kind for kind in kinds() if kind.name == name]


def document() -> str:
    """docs/wrong-kernels.md: what every wrong kernel does, by operators and dtypes."""
    groups: dict[str, list[str]] = {}
    for name in names():
        module = load(name)
        title = f"{', '.join(module.ON)} ({', '.join(module.DTYPES)})"
        groups.setdefault(title, []).append(f"- {name}: {(module.__doc__ or '').strip()}")
    lines = [
        "# Wrong kernels",
        "",
        "Each is one file of `backend/fusescope/measure/wrong/`, checked as any user's implementation is:",
        "`fusescope selfcheck --seeds 100` tries each on 100 inputs, and wants at least 99 of them caught.",
        "`python3 scripts/wrong_kernels.py` renews this list.",
    ]
    for title in sorted(groups):
        lines += ["", f"**{title}**", "", *groups[title]]
    return "\n".join(lines) + "\n"
