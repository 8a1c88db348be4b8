"""The segments of one setting, each loaded, compiled, checked and timed once, and shared by all schemes that
have it."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fusescope.core import paths, whole_files
from fusescope.measure.checking import check
from fusescope.measure.checking.poison import poisoned
from fusescope.measure.failures import Failed
from fusescope.search.measuring import inputs
from fusescope.search.scheme import codegen, unfused
from fusescope.search.scheme.codegen import Segment
from fusescope.search.scheme.layer import VALUES
from fusescope.search.scheme.setting import Setting

_CHECKED_ELEMENTS = 1 << 25  # of one output: of scores that are larger only the first sequences are compared


class SegmentError(Failed):
    """A segment that cannot be used; the text names it and says why. status: of the records of schemes that
    have it."""


class Segments:
    """Functions by segment. ``failed``: segments that cannot be used, with status and reason."""

    def __init__(self, setting: Setting, values: Mapping[str, Any]):
        self.setting, self.values = setting, values
        self.functions: dict[tuple, Callable] = {}
        self.failed: dict[tuple, SegmentError] = {}
        self._known: dict[str, Any] | None = None

    def missing(self, wanted: list[Segment]) -> list[Segment]:
        """Those not tried yet, each once."""
        found = {key(s): s for s in wanted if key(s) not in self.functions and key(s) not in self.failed}
        return list(found.values())

    def function(self, s: Segment) -> Callable:
        """The segment's function; SegmentError where it failed before."""
        if key(s) in self.failed:
            raise self.failed[key(s)]
        if key(s) not in self.functions:
            self.functions[key(s)] = load(s, self.setting)
        return self.functions[key(s)]

    def fail(self, s: Segment, why: str, status: str = "error") -> None:
        self.functions.pop(key(s), None)
        self.failed[key(s)] = SegmentError(f"segment {s.span} ({s.how}): {why}", status)

    def arguments(self, s: Segment) -> list[Any]:
        """What flows into the segment in the unfused layer, in the layer's dtype."""
        return [self.known[name] for name in s.takes]

    @property
    def known(self) -> dict[str, Any]:
        """Every value of the unfused layer; kept until ``forget``."""
        if self._known is None:
            self._known = unfused.run(self.values)
        return self._known

    def forget(self) -> None:
        """Free the intermediate values."""
        self._known = None

    def wrong(self, s: Segment) -> str | None:
        """What is wrong with the segment's result on memory poisoned before, against its operators in
        float64; None where it is right. Large outputs are compared for the first sequences only."""
        function, given = self.function(s), self.arguments(s)
        got = function(*given)  # compiles, and puts blocks of the right sizes into the allocator
        size = _tuple(got)[0].nbytes
        del got
        if self.setting.cuda:  # on the CPU the mode that fills small outputs compiles everything again
            with poisoned(self.setting.device, size):
                got = _tuple(function(*given))
        else:
            got = _tuple(function(*given))
        first = min(max(1, _CHECKED_ELEMENTS // (t.numel() // t.shape[0])) for t in got)
        part = {
            n: _first(n, self.known[n], first)
            for n in self.known
            if n in VALUES or n in ("empty_rows", "heads")
        }
        expected = inputs.reference(part, s.operators)
        for name, out in zip(s.gives, got):
            ref = expected[name]
            if out.shape[1:] != ref.shape[1:] or out.dtype != self.known[name].dtype:
                return f"{name} has shape {tuple(out.shape)} and dtype {out.dtype}"
            allowed = inputs.tolerance(self.setting, s.operators, _finite(ref))
            if reason := check.compare(out[:first], ref, allowed).reason:
                return f"{name}: {reason}"
        return None


def key(s: Segment) -> tuple:
    return s.operators.start, s.operators.stop, s.how


def source_hash(text: str) -> str:
    """16 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(s: Segment, setting: Setting) -> Callable:
    """The function of a segment, from a file in the build cache: a real file, so that tracebacks and
    profilers can show it."""
    text = codegen.segment_module(s, setting)
    name = f"{s.function}_{source_hash(text)}"
    file = folder() / f"{name}.py"
    if not file.is_file():
        whole_files.replace(file, text)
    spec = importlib.util.spec_from_file_location(f"fusescope_segment_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, s.function)


def folder() -> Path:
    """Where segments lie: by hash of their text."""
    found = paths.build_cache() / "segments"
    found.mkdir(parents=True, exist_ok=True)
    return found


def scheme(code: str | int, setting: Setting, segments: Segments) -> Callable:
    """The function ``layer`` of a scheme over functions that are shared; SegmentError where one of its
    segments failed.

    The text of the schedule and of every segment is that of ``codegen.generate``.
    """
    plan = codegen.plan(code, setting)
    space = {s.function: segments.function(s) for s in plan}
    exec(compile(codegen.schedule(plan), f"<scheme {code}>", "exec"), space)
    return space["layer"]


def _tuple(got) -> tuple:
    return got if isinstance(got, tuple) else (got,)


def _first(name: str, value, count: int):
    """The first sequences of a value that is per sequence."""
    if not hasattr(value, "dim"):
        return value
    if name in ("mask", "empty_rows"):
        return value[:count] if value.dim() == 4 else value
    return value[:count] if VALUES[name].shape[0] == "batch" else value


def _finite(ref):
    """The finite part, which sets the scale: masked scores hold minus infinity."""
    return ref if bool(ref.isfinite().all()) else ref[ref.isfinite()]
