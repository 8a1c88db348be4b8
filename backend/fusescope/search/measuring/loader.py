"""Segments brought to where they can be called: compiled in parallel, looked at once, with what is wrong with
them said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusescope import ops
from fusescope.core.records import case_key
from fusescope.core.reporter import Reporter
from fusescope.measure import failures, machine
from fusescope.search.measuring import baselines, compile_ahead
from fusescope.search.measuring.segments import Segments
from fusescope.search.scheme import codegen, templates
from fusescope.search.scheme.setting import SEGMENT, Setting

DEADLINE_S = 300.0  # one segment or code on its way, compilation included


class Loader:
    """Fills ``segments`` on demand; progress and failures go to ``reporter``."""

    def __init__(self, setting: Setting, reporter: Reporter, segments: Segments):
        self.setting, self.reporter, self.segments = setting, reporter, segments
        self.unbuilt: str | None = None  # why our kernels could not be built

    def kernels(self, say: Callable[[str], None]) -> None:
        """Load the kernels that segments use; where they cannot be built, those segments fail with the
        reason."""
        say("loading kernels (compiled in the first run)")
        families = tuple(dict.fromkeys(ops.load(t.name).FAMILY for t in templates.TEMPLATES))
        self.unbuilt = machine.load_kernels(self.setting.device, self.reporter, only=families)

    def load(self, names: Iterable[str], say: Callable[[str], None]) -> None:
        """Every segment that these codes and baselines need and that is not there yet; compiled in parallel
        where it must be."""
        wanted = self.segments.missing([s for n in names for s in _plan(n, self.setting)])
        before = self.reporter.statuses()
        for s in wanted:
            if (status := before.get((self.key(s), s.how), "ok")) != "ok":
                self.segments.fail(s, f"it {status} before, as its record says", status)
        wanted = self.segments.missing(wanted)
        due = [s for s in wanted if s.how == "inductor"]
        number = compile_ahead.processes(self.setting, len(due), self._free_bytes())
        done = 0

        def one(s, ended=None) -> None:
            nonlocal done
            done += 1
            say(f"segment {s.span}: {s.how} ({done} of {len(wanted)})")
            self.reporter.check()
            if ended:
                return self.segments.fail(s, ended, "crashed")
            self.reporter.doing(self.key(s), s.how, DEADLINE_S)
            self._check(s)

        if number > 1:
            say(f"compiling {len(due)} segments in {number} processes")
            for s, ended in compile_ahead.compile_all(self.setting, due, number, self.reporter.check):
                one(s, ended)
        for s in self.segments.missing(wanted):
            one(s)
        self.segments.forget()

    def case(self, s: codegen.Segment) -> dict:
        """The case of a segment's own record."""
        return self.setting.case() | {"first": s.operators[0], "last": s.operators[-1]}

    def key(self, s: codegen.Segment) -> str:
        return case_key(SEGMENT, self.case(s), self.setting.dtype, self.setting.device)

    def _check(self, s: codegen.Segment) -> None:
        """Compile a segment and look at its result, once; what is wrong with it becomes its failure."""
        if not self.segments.missing([s]):
            return
        if self.unbuilt and s.how not in ("torch", "inductor"):
            return self.segments.fail(s, self.unbuilt)
        import torch

        try:
            with torch.no_grad():
                why = self.segments.wrong(s)
            if why:
                self.segments.fail(s, why, "wrong")
        except Exception as e:
            status, reason = failures.cause(e)
            self.segments.fail(s, reason, status)

    def _free_bytes(self) -> int | None:
        if not self.setting.cuda:
            return None
        import torch

        return torch.cuda.mem_get_info(self.setting.device)[0]


def _plan(name: str, setting: Setting) -> list[codegen.Segment]:
    """The segments of a code or a baseline."""
    return baselines.plan(name, setting) if name in baselines.BASELINES else codegen.plan(name, setting)
