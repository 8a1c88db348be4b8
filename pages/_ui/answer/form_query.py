"""The settings of a run as the query that fills the form of its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope import models, ops
from fusescope.core.records import Run


def of(run: Run, case: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The controls of Kernels, or of Models, as they were for ``case``, or for a run of one case or a sweep;
    of a grid its first sweep, of several cases of a model the first."""
    cases = [dict(case)] if case else [dict(c) for c in run.spec.get("cases") or ()]
    return _of_model(run, cases) if run.kind == "model" else _of_bench(run, cases)


def _of_bench(run: Run, cases: list[dict[str, Any]]) -> dict[str, str]:
    if not cases:
        return {"op": str(run.spec.get("op"))}
    wanted_params = (
        {p.name: p for p in ops.load(run.spec["op"]).PARAMETERS} if run.spec.get("op") in ops.names() else {}
    )
    query = {"op": str(run.spec.get("op"))} | _settings(run, "dtype", "baseline", "cache")
    query["impl"] = ",".join(i for i in run.spec.get("impls") or () if ".py:" not in i)
    own = " ".join(i for i in run.spec.get("impls") or () if ".py:" in i)
    if own:
        query |= {"own": own, "impl": ",".join(run.spec["impls"])}
    for name, p in wanted_params.items():
        values = list(dict.fromkeys(str(c[name]) for c in cases if c.get(name) is not None))
        derived = p.default is None and name in ("seq_k", "kv_heads")
        if derived and all(c.get(name) == c.get({"seq_k": "seq", "kv_heads": "heads"}[name]) for c in cases):
            continue
        if len(values) == 1:
            query[name] = values[0]
        elif values and p.sweep and "sweep" not in query:
            query |= {"sweep": name, f"{name}s": ",".join(values)}
        elif values:  # the form sweeps over one parameter
            query[name] = values[0]
    return query


def _of_model(run: Run, cases: list[dict[str, Any]]) -> dict[str, str]:
    model = str(run.spec.get("op", "")).removeprefix("model:")
    query = {"model": "config.json", "config_file": model} if models.is_path(model) else {"model": model}
    query |= _settings(run, "dtype", "baseline", "cache", "checkpoint")
    query["impl"] = ",".join(run.spec.get("impls") or ())
    if cases:
        own = {k: str(v) for k, v in cases[0].items() if v is not None}
        if models.is_path(model):
            own = {k: v for k, v in own.items() if k not in _OF_FILE and (k, v) not in _USUAL}
        query |= own
    return query


_OF_FILE = ("heads", "head_dim", "config")
"""What a config.json says: the form has no box for it."""
_USUAL = (("mask", "causal"), ("mask", "full"))
"""Masks of a model by its config.json: the form has a box only for one that takes others."""


def _settings(run: Run, *names: str) -> dict[str, str]:
    found = {k: str(run.spec[k]) for k in (*names, "processes") if run.spec.get(k)}
    if run.spec.get("same_within"):
        found["within"] = str(round(100 * float(run.spec["same_within"]), 3))
    return found
