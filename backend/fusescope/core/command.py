"""The command line that measures the same again: every run says how. ``fusescope.cli`` reads what this
writes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

_FLAGS = {
    "batch": "--batch",
    "seq": "--seq",
    "seq_k": "--seq-k",
    "heads": "--heads",
    "kv_heads": "--kv-heads",
    "head_dim": "--head-dim",
    "mask": "--mask",
}


def again(kind: str, spec: Mapping[str, Any]) -> str:
    """The command line for a run's kind and spec; empty for other kinds, and where a comparison's spec lacks
    what it compared."""
    if kind in _COMPARISONS:
        complete = all(spec.get(key) for key in ("op", "impls", "cases", "baseline"))
        return _COMPARISONS[kind](spec) if complete else ""
    return layer(kind, spec) if kind in ("traverse", "search") else ""


def bench(spec: Mapping[str, Any]) -> str:
    """``fusescope bench …`` for a benchmark's spec."""
    words = ["fusescope", "bench", str(spec["op"])]
    cases = [dict(c) for c in spec.get("cases") or ()]
    flags = _as_flags(cases) if spec["op"] == "attention" else None
    if flags is not None:
        words += flags
    else:
        for case in cases:
            words += ["--case", ",".join(f"{k}={v}" for k, v in case.items() if v is not None)]
    return shlex.join(words + _compared(spec))


def model(spec: Mapping[str, Any]) -> str:
    """``fusescope model …`` for a comparison of a model's execution modes; cases are the product of what
    differs among them."""
    words = ["fusescope", "model", str(spec["op"]).removeprefix("model:")]
    words += _product(spec, phase="prefill")
    words += _compared(spec)
    return shlex.join(words + (["--checkpoint", str(spec["checkpoint"])] if spec.get("checkpoint") else []))


def parallel(spec: Mapping[str, Any]) -> str:
    """``fusescope parallel …`` for a comparison of layouts over several devices."""
    words = ["fusescope", "parallel", str(spec["op"]).removeprefix("model:")]
    words += _product(spec, phase="prefill", lengths="fixed")
    parts = [str(impl).partition("-") for impl in spec.get("impls") or ()]
    words += ["--attention", ",".join(dict.fromkeys(attention for attention, *_ in parts))]
    if several := [layout for *_, layout in parts if layout]:
        words += ["--layout", ",".join(dict.fromkeys(several))]
    words += ["--dtype", str(spec.get("dtype")), "--device", str(spec.get("device"))]
    words += ["--micro-batches", str(spec.get("micro_batches"))]
    words += ["--weak"] if spec.get("weak") else []
    words += [f"--no-{what}" for what in ("links", "probes") if spec.get(what) is False]
    words += ["--trace", str(spec["trace"])] if spec.get("trace") else []
    return shlex.join(words)


def layer(kind: str, spec: Mapping[str, Any]) -> str:
    """``fusescope traverse …`` or ``search …`` for the spec of such a job."""
    words, ranges = ["fusescope", kind], spec.get("ranges") or ()
    if kind == "traverse":
        words += [str(end) for pair in ranges for end in pair]
        words += ["--no-segments"] if spec.get("segments") is False else []
        words += ["--part", ":".join(map(str, spec["part"]))] if spec.get("part") else []
        keys = {"limit": "--limit", "budget_s": "--budget", "after": "--after"}
    else:
        words += [w for pair in ranges for w in ("--range", *map(str, pair))]
        keys = {
            "strategy": "--strategy",
            "evaluations": "--evaluations",
            "seconds": "--seconds",
            "replay": "--replay",
        }
    sizes = ("batch", "seq", "heads", "head_dim", "ffn", "mask", "dtype", "device", "compiler", "seed")
    for key, flag in (keys | {k: f"--{k.replace('_', '-')}" for k in sizes}).items():
        if spec.get(key) is not None:
            words += [flag, str(spec[key])]
    return shlex.join(words)


def _compared(spec: Mapping[str, Any]) -> list[str]:
    words = ["--impl", ",".join(spec.get("impls") or ()), "--baseline", str(spec.get("baseline"))]
    return words + [w for key in ("dtype", "device", "cache") for w in (f"--{key}", str(spec.get(key)))]


def _product(spec: Mapping[str, Any], **usual: str) -> list[str]:
    """An option for each key of the cases, with all its values; none where every case has the usual one."""
    cases, words = [dict(c) for c in spec.get("cases") or ()], []
    for key in dict.fromkeys(k for c in cases for k in c):
        values = list(dict.fromkeys(str(c[key]) for c in cases if c.get(key) is not None))
        if values and values != [usual.get(key)]:
            words += [f"--{key.replace('_', '-')}", ",".join(values)]
    return words


def _as_flags(cases: list[dict]) -> list[str] | None:
    """Attention's own options, where the cases are their product; None where --case has to spell
    them out."""
    values = {
        key: list(dict.fromkeys(str(c[key]) for c in cases if c.get(key) is not None)) for key in _FLAGS
    }
    if any((set(c) - set(_FLAGS) - {"bias"}) or c.get("bias") not in (None, "none") for c in cases):
        return None
    derived = set()
    if all(c.get("seq_k") == c.get("seq") for c in cases):
        derived.add("seq_k")
    if all(c.get("kv_heads") == c.get("heads") for c in cases):
        derived.add("kv_heads")
    count = 1
    for key in _FLAGS:
        count *= 1 if key in derived else max(1, len(values[key]))
    if count != len(cases):
        return None
    return [
        word
        for key, flag in _FLAGS.items()
        if values[key] and key not in derived
        for word in (flag, ",".join(values[key]))
    ]


_COMPARISONS = {"bench": bench, "model": model, "parallel": parallel}
