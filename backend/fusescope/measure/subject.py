"""What is measured, as bench.py and trial.py ask about it: an operator here, a model in models.py, a fusion
scheme in search/measuring/subject.py.

A subject also defines, as ``Operator`` does here:

name, dtypes
implementations(device, arch) -> list[Implementation]
describe(impl, device) -> Implementation            one of them, or a user's own; ValueError for no such
case(values, dtype, device, seed, contiguous) -> Case   inputs, reference and tolerance
make(impl, inputs) -> run                           a callable without arguments
cost(values, dtype) -> Cost
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fusescope import ops
from fusescope.core.records import Record
from fusescope.measure.checking.check import Case
from fusescope.ops.base import Cost, Implementation


class Subject:
    """What most subjects have in common."""

    families: tuple[str, ...] | None = None  # what our implementations are built and loaded from; None: all
    strided = False  # implementations are checked on non-contiguous inputs, too
    movable = False  # inputs may move between rounds; where False, placement is part of what is compared
    alters = False  # between timed calls inputs get other values, and earlier results are overwritten
    poisoned = True  # … and once more on memory that was filled with NaN
    reference_s = 0.0  # prior of making a case's reference, besides its arithmetic (analysis/estimate.py)

    def renews(self, info: Implementation) -> bool:
        """Whether an implementation is checked on fresh values in the same tensors, too."""
        return True

    def joined(self, out: Any) -> Any:
        """A result as the one tensor that is compared."""
        return out

    def compile_seconds(self, impls: Iterable[str], device: str) -> float:
        """Seconds that these implementations spend in a compiler for a new case."""
        return 0.0

    def skips(self, impl: str) -> bool:
        """Whether an implementation leaves out what a mask hides altogether."""
        return True

    def complete(self, trial, candidate, record: Record) -> Record:
        """The record with what only this kind of subject says."""
        return record

    def end(self) -> None:
        """A case is done: nothing of it is needed any more."""


class Operator(Subject):
    """One operator of backend/fusescope/ops."""

    strided = movable = alters = True

    def __init__(self, name: str):
        self.name, self.module = name, ops.load(name)
        self.dtypes = self.module.DTYPES
        self.families = (self.module.FAMILY,)

    def renews(self, info: Implementation) -> bool:
        """Not of peers: theirs may prepare things outside the call (a bias and a mask in one tensor), and
        PyTorch caches no results."""
        return info.kind != "peer"

    def validate(self, case: Mapping[str, Any]) -> dict[str, Any]:
        return self.module.validate(dict(case))

    def describe(self, impl: str, device: str) -> Implementation:
        return ops.describe(self.name, impl, device)

    def implementations(self, device: str, arch: str | None) -> list[Implementation]:
        return ops.implementations(self.name, device, arch)

    def make(self, impl: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        return ops.make(self.name, impl, inputs)

    def case(self, values: Mapping[str, Any], dtype: str, device: str, seed: int, contiguous: bool) -> Case:
        return Case(self.module, values, dtype, device, seed, contiguous)

    def inputs(self, values: Mapping[str, Any], dtype: str, device: str, seed: int) -> dict[str, Any]:
        return self.module.inputs(values, dtype, device, seed)

    def joined(self, out: Any) -> Any:
        return ops.joined(self.name, out)

    def cost(self, values: Mapping[str, Any], dtype: str, impl: str | None = None) -> Cost:
        return self.module.cost(values, dtype)

    def compile_seconds(self, impls: Iterable[str], device: str) -> float:
        return ops.compile_seconds(self.name, impls, device)

    def skips(self, impl: str) -> bool:
        return ops.skips(self.name, impl)

    def complete(self, trial, candidate, record: Record) -> Record:
        """With what was prepared outside a call, in time and size."""
        ms, size, compiled = (
            getattr(candidate.run, name, None) for name in ("setup_ms", "setup_bytes", "compile_ms")
        )
        if record.status != "ok" or (ms is None and compiled is None):
            return record
        ms, compiled = (None if t is None else float(f"{t:.4g}") for t in (ms, compiled))
        return replace(record, extra={"setup": {"ms": ms, "bytes": size, "compile_ms": compiled}})


class WithFunctions(Operator):
    """An operator with functions of the caller among its implementations."""

    def __init__(self, name: str, functions: Mapping[str, Callable]):
        super().__init__(name)
        self.functions = functions

    def skips(self, impl: str) -> bool:
        return impl not in self.functions and super().skips(impl)

    def describe(self, impl: str, device: str) -> Implementation:
        """As ops.common.user describes a file's function; without source text (a compiled one) it has no
        hash."""
        if impl not in self.functions:
            return super().describe(impl, device)
        try:
            source = inspect.getsource(self.functions[impl])
            digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        except (OSError, TypeError):
            digest = None
        idea = f"{impl}, a function of the caller"
        return Implementation(impl, "user", idea, ("cpu", "cuda"), None, digest)

    def make(self, impl: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
        if impl not in self.functions:
            return super().make(impl, inputs)
        args, kwargs = self.module.arguments(inputs)
        return lambda: self.functions[impl](*args, **kwargs)
