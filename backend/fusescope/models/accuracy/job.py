"""How exact the execution modes of a model are: as a whole, module by module, kernel by kernel, and inside
attention.

Every mode runs on the same input as a float64 reference that has exactly its weights (those rounded to the
mode's dtype), so what is measured is arithmetic, not the rounding of weights. Two figures per place: the
error accumulated up to there, and, for single operations, their own: the same input given to the operation in
float64.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.analysis.accuracy import depth, errors
from fusescope.core.errors import Cancelled, Unsupported
from fusescope.core.machine import environment
from fusescope.models.accuracy import exact as accuracy_exact
from fusescope.models.accuracy import hooks, select
from fusescope.models.accuracy import reference as accuracy_reference
from fusescope.models.describe.modes import MODES
from fusescope.models.run import build, fused_run, modes

SCHEMA = 1
HOOKED = ("eager", "sdpa", "flex", "flash", "fusescope")
"""Modes that are Hugging Face's modules with an attention function, which hooks can look into."""
OUTPUT = "output"
# bytes of reference tensors held at a time; beyond it the model runs several times
_BUDGET = {"cpu": 3 << 30, "cuda": 24 << 30}


def run(spec: Mapping[str, Any], reporter) -> None:
    """The job kind `accuracy`: a report as artifacts/accuracy.json.gz; see jobs/kinds/accuracy.py for the
    spec."""
    reporter.environment(**environment.collect(spec["device"]))
    entries = [tuple(e) for e in spec["entries"]]
    found = {"schema": SCHEMA, "model": spec["model"], "case": dict(spec["case"]), "entries": []}
    done, begun = 0, time.monotonic()
    for dtype in dict.fromkeys(dtype for _, dtype in entries):
        model, inputs = _prepare(spec, dtype)
        for mode in [m for m, d in entries if d == dtype]:
            reporter.check()
            eta = (time.monotonic() - begun) / done * (len(entries) - done) if done else None
            reporter.progress(done, len(entries), f"{mode} in {dtype} against float64", eta)
            entry = {"way": mode, "dtype": dtype, "reason": None, "rows": [], "because": depth.reason(dtype)}
            try:
                entry |= compare(model, inputs, spec["case"], mode, dtype, spec["inside"], reporter.check)
            except Cancelled:
                raise
            except Exception as error:  # a mode that does not run is a result with its reason
                entry["reason"] = (str(error).strip().splitlines() or [type(error).__name__])[0]
                said = str(error) if isinstance(error, Unsupported) else traceback.format_exc()
                reporter.log(f"{mode} in {dtype}: {said}")
            found["entries"].append(entry)
            done += 1
        del model, inputs
    path = reporter.artifact("accuracy.json.gz")
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(found, file, separators=(",", ":"))
    reporter.progress(done, len(entries), words(found))
    if all(e["reason"] for e in found["entries"]):
        raise RuntimeError(f"no execution mode could be checked: {found['entries'][0]['reason']}")


def words(report: Mapping[str, Any]) -> str:
    """The report in one line."""
    parts = []
    for e in report["entries"]:
        if e["reason"]:
            parts.append(f"{e['way']} {e['dtype']}: not run")
            continue
        last, first = e["rows"][-1], depth.first_divergence(e["rows"])
        verdict = (
            "accepted everywhere" if first is None else f"beyond its limit from {e['rows'][first]['name']} on"
        )
        error = "infinite" if last["relative_l2"] is None else f"{last['relative_l2']:.2g}"
        parts.append(f"{e['way']} {e['dtype']}: relative error {error}, {verdict}")
    return "; ".join(parts)


def compare(
    model,
    inputs: Mapping[str, Any],
    case: Mapping[str, Any],
    mode: str,
    dtype: str,
    inside: bool = True,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """{"rows": one dict per place in order of execution, the whole output last}; Unsupported where the mode
    does not run.

    A row: name, kind (a module's class, or "intermediate", "model"), level ("module", "kernel", "inside",
    "model"), shape, roundings, the fields of Errors, limit and accepted, and "own": Errors of a kernel's own
    arithmetic, None where it has none.
    """
    exact_inputs = {k: v.double() if _floats(v) else v for k, v in inputs.items()}
    if "cache" in inputs:
        exact_inputs["cache"] = inputs["cache"].to(torch.float64)
    reference = model.reference(torch.float64)
    lengths = select.lengths(inputs, case)
    sizes = accuracy_reference.places(reference, exact_inputs, inside)
    budget = _BUDGET["cuda" if str(model_device(reference)).startswith("cuda") else "cpu"]
    rows: dict[str, dict] = {}
    final = None
    for names in accuracy_reference.groups(sizes, budget):
        check()
        exact, whole = accuracy_reference.tensors(reference, exact_inputs, names, lengths)
        taps = _Taps(reference, exact, lengths, dtype, names, inputs.get("keep"), check)
        out = _run(model, inputs, case, mode, taps, inside)
        rows |= taps.rows
        final = select.pair(out, whole, lengths)
    order, roundings = [], 0
    for name, (_, level) in sizes.items():
        roundings += (
            level == "kernel"
        )  # of the reference: a mode that fuses or hides its operations is held to the same limits
        if name in rows:
            order.append(name)
            rows[name]["roundings"] = max(1, roundings)
    last = errors.errors(*final, dtype, torch).to_json()
    last |= {
        "name": OUTPUT,
        "kind": "model",
        "level": "model",
        "shape": list(whole.shape),
        "own": None,
        "roundings": max(1, roundings),
    }
    return {"rows": depth.with_limits([*(rows[n] for n in order), last], dtype)}


def model_device(module):
    """Where a module's parameters lie."""
    return next(module.parameters()).device


class _Taps:
    """Compares what a mode computes with the reference, tensor by tensor, as it goes."""

    def __init__(
        self, reference, exact: Mapping[str, Any], lengths, dtype: str, names: set[str], keep, check
    ):
        self.modules = dict(reference.named_modules())
        self.exact, self.lengths, self.dtype, self.names, self.keep, self.check = (
            exact,
            lengths,
            dtype,
            names,
            keep,
            check,
        )
        self.rows: dict[str, dict] = {}

    def add(self, name: str, kind: str, level: str, tensor, own=None) -> None:
        """Judge a tensor of that name; ``own``: what the operation gives in float64 for the input that it
        had."""
        self.check()
        ref = self.exact.get(name)
        if ref is None or name in self.rows:
            return
        form = select.layout(name)
        out, ref = select.pair(tensor, ref, self.lengths, form, chosen=True)
        row = {"name": name, "kind": kind, "level": level, "shape": list(tensor.shape), "own": None}
        if own is not None:
            own = select.pair(tensor, own, self.lengths, form)
            row["own"] = errors.errors(*own, self.dtype, torch).to_json()
        self.rows[name] = row | errors.errors(out, ref, self.dtype, torch).to_json()

    def module(self, name, module, args, kwargs, output) -> None:
        leaf = not any(True for _ in module.children()) and any(True for _ in module.parameters())
        own = None
        if leaf or accuracy_reference.is_activation(module):
            twin = self.modules[name.partition("#")[0]]
            with accuracy_exact.float64_stays():
                doubled = [a.double() if _floats(a) else a for a in args]
                own = hooks.first_tensor(
                    twin.forward(*doubled, **{k: v.double() if _floats(v) else v for k, v in kwargs.items()})
                )
        self.add(name, type(module).__name__, "kernel" if own is not None else "module", output, own)

    def attention(self, names: Mapping[int, str]):
        """A visitor of attention calls; ``names``: module id → its name."""

        def visit(call, module, query, key, value, mask, keywords):
            result = call(query, key, value)
            name = names[id(module)]
            inner = {"query": query, "key": key, "value": value, "context": hooks.first_tensor(result)}
            if not any(f"{name}:{n}" in self.names for n in hooks.INSIDE):
                return result
            kept = (
                self.keep if self._covers(key) else mask
            )  # what a mode makes of the mask (a plan, blocks) is its own affair
            known = accuracy_exact.attention(module, query, key, value, kept, keywords) or {}
            if module.config._attn_implementation == "eager":
                inner["scores"] = _eager_scores(module, query, key, keywords)
            inner["probabilities"] = hooks.probabilities(call, query, key, value)
            for n in hooks.INSIDE:
                if n in inner:
                    own = known.get(n) if n in ("scores", "probabilities", "context") else None
                    self.add(
                        f"{name}:{n}", "intermediate", "kernel" if n == "context" else "inside", inner[n], own
                    )
            return result

        return visit

    def _covers(self, key) -> bool:
        return self.keep is not None and self.keep.dim() == 4 and self.keep.shape[-1] == key.shape[-2]


def _run(model, inputs, case, mode: str, taps: _Taps, inside: bool):
    """The output of a mode, its tensors given to ``taps``."""
    if mode in HOOKED:
        call, module = modes.make(mode, model, inputs), model.view(modes.view(MODES[mode]))
        names = {id(m): n for n, m in module.named_modules()}
        watch = hooks.attention_calls(taps.attention(names)) if inside else contextlib.nullcontext()
        with hooks.module_outputs(module, taps.module, taps.names), watch:
            return call()
    if MODES[mode].attention is None:
        call = fused_run.operations(model, inputs, MODES[mode].quantised)
        return call(record=lambda name, tensor: taps.add(name, "fused", "kernel", tensor))
    return modes.make(mode, model, inputs)()


def _eager_scores(module, query, key, keywords):
    """Scaled scores as Hugging Face's eager attention computes them, in its dtype and order."""
    groups = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(groups, 1) if groups > 1 else key
    scaling = keywords.get("scaling")
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    bias = keywords.get("position_bias")
    return scores if bias is None else scores + bias


def _floats(value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _prepare(spec: Mapping[str, Any], dtype: str):
    model = build.build(spec["model"], spec["case"], dtype, spec["device"], spec["seed"], spec["checkpoint"])
    return model, build.inputs(model, spec["case"], spec["seed"])
