"""A layer's fusion schemes and baselines as measure's trial asks about them (measure/subject.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fusescope.core.machine.conditions import marks
from fusescope.core.records import Record
from fusescope.measure.checking.check import Case, Outcome
from fusescope.measure.subject import Subject
from fusescope.ops.base import Cost, Implementation, Tolerance
from fusescope.search.measuring import baselines, inputs, segments
from fusescope.search.scheme import codegen
from fusescope.search.scheme.layer import cost
from fusescope.search.scheme.setting import OP, Setting

_DIGITS = {"first": 3, "max_abs": 3, "max_rel": 3, "cosine": 6}


class LayerCase(Case):
    """The layer's inputs with its output in float64."""

    def allowed(self) -> Tolerance:
        return inputs.tolerance(self.module.setting, range(15), self.reference)

    def joined(self, out: Any) -> Any:
        return out

    def against_reference(self, out: Any) -> Outcome:
        outcome = super().against_reference(out)
        if outcome.reason:
            return replace(outcome, reason=f"{outcome.reason}; each segment on its own is correct")
        return outcome


class Schemes(Subject):
    """Schemes (by canonical code) and baselines (by name) of one setting, over shared ``segments``. Segments
    are checked on poisoned memory before any scheme has them (loader.py), so a scheme is checked once."""

    NAME, poisoned = OP, False

    def __init__(self, setting: Setting, seed: int):
        """Raises torch.OutOfMemoryError where the setting does not fit the device."""
        self.setting = setting
        self.layer_case = LayerCase(self, setting.case(), setting.dtype, setting.device, seed)
        self.segments = segments.Segments(setting, self.layer_case.inputs)

    def renews(self, info: Implementation) -> bool:
        return False

    def implementations(self, device: str, arch: str | None) -> list[Implementation]:
        return [self.describe(name, device) for name in baselines.BASELINES]

    def describe(self, impl: str, device: str) -> Implementation:
        devices = (device.split(":")[0],)
        if impl in baselines.BASELINES:
            return Implementation(impl, "baseline", baselines.BASELINES[impl], devices)
        source = segments.source_hash(codegen.generate(impl, self.setting))
        words = codegen.words(impl, self.setting)
        return Implementation(impl, "scheme", words, devices, source_hash=source)

    def case(self, values: Mapping[str, Any], dtype: str, device: str, seed: int, contiguous: bool) -> Case:
        return self.layer_case

    def inputs(self, values, dtype: str, device: str, seed: int, contiguous: bool = True) -> dict[str, Any]:
        return inputs.make(self.setting, seed)

    def reference(self, values: Mapping[str, Any]) -> Any:
        return inputs.reference(values)["out"]

    def make(self, impl: str, given: Mapping[str, Any]) -> Callable[[], Any]:
        if impl in baselines.BASELINES:
            return baselines.make(impl, self.setting, given, self.segments)
        layer, arguments = segments.scheme(impl, self.setting, self.segments), inputs.arguments(given)
        return lambda: layer(**arguments)

    def cost(self, values: Mapping[str, Any], dtype: str, impl: str | None = None) -> Cost:
        return cost(range(15), self.setting.sizes(), dtype)

    def complete(self, trial, candidate, record: Record) -> Record:
        """With the scheme's description as what ran, and numbers of few digits, which halves the size of
        thousands of records."""
        if record.status == "ok":
            kept = record.conditions if marks(record) else None  # thousands of records: what is normal goes
            record = replace(record, backend=candidate.info.idea, gbps=None, conditions=kept)
        return Record.from_json(_short(record.to_json()))


def _short(value: Any, name: str = "") -> Any:
    """JSON values with numbers of five digits, below any clock's resolution, or as _DIGITS says."""
    if isinstance(value, dict):
        return {k: _short(v, k) for k, v in value.items()}
    return float(f"{value:.{_DIGITS.get(name, 5)}g}") if isinstance(value, float) else value
