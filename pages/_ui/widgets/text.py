"""Names of runs, states and devices, and text that is safe inside Markdown and HTML."""

from __future__ import annotations

import html
import re

from fusescope.charts import numbers
from fusescope.charts.colours import short
from fusescope.charts.tables import varying_values
from fusescope.core.records import Run

_STATUS = {
    "queued": "… queued",
    "running": "▶ running",
    "done": "✓ done",
    "failed": "✗ failed",
    "cancelled": "■ cancelled",
    "interrupted": "! interrupted",
}


def md(text: str | None) -> str:
    """Text of a run as plain characters inside Markdown: a title from elsewhere must not load a picture or
    pose as a link."""
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~$:-])", r"\\\1", text or "").replace("\n", " ")


def escape(value: object) -> str:
    """Text as plain characters inside HTML; "n/a" for None."""
    return html.escape(numbers.NA if value is None else str(value), quote=False)


def plural(count: int, noun: str) -> str:
    """ "1 case", "12 cases"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def status_text(status: str) -> str:
    """A run's state with a sign and a word."""
    return _STATUS.get(status, status)


def device_text(name: str) -> str:
    """A device's name without what every name of its maker has: "Intel Xeon" of "Intel(R) Xeon(R)
    Processor"."""
    return re.sub(r"\((?:R|TM)\)|\s(?:Processor|CPU)\b|\s@\s.*", "", name).strip()


def run_name(run: Run) -> str:
    """The title somebody gave, else what the run did: "attention, 5 implementations, seq 512 to 4096,
    float16"."""
    if run.title:
        return run.title
    spec = run.spec
    if run.kind in ("bench", "model"):
        impls, what = spec.get("impls") or (), "way" if run.kind == "model" else "implementation"
        return ", ".join(
            p
            for p in (
                str(spec.get("op", "")).removeprefix("model:"),
                f"{len(impls)} {what}{'' if len(impls) == 1 else 's'}",
                _cases(spec),
                str(spec.get("dtype", "")),
            )
            if p
        )
    if run.kind in ("trace", "sanitize", "ncu", "nsys"):
        return f"{run.kind} of {spec.get('op', '')} {short(str(spec.get('impl', '')))}"
    if run.kind == "import":
        return f"import of {str(spec.get('file', '')).rpartition('/')[2]}"
    if run.kind in ("accuracy", "scores"):
        return f"{'accuracy' if run.kind == 'accuracy' else 'attention scores'} of {spec.get('model', '')}"
    if run.kind in ("traverse", "search"):
        return f"{run.kind} of batch {spec.get('batch')}, seq {spec.get('seq')}, {spec.get('mask')}, {spec.get('dtype')}"
    if run.kind == "build":
        return "build" + (f" for {', '.join(spec['archs'])}" if spec.get("archs") else "")
    return run.kind


def _cases(spec) -> str:
    cases = [dict(c) for c in spec.get("cases") or ()]
    changing = varying_values(cases)
    words = []
    for key, values in changing.items():
        words.append(
            f"{key} {values[0]} to {values[-1]}"
            if len(values) > 2
            else f"{key} {' and '.join(map(str, values))}"
        )
    if not changing and cases:
        words = [
            f"{k} {cases[0][k]}" for k in ("mask", "batch", "seq", "n", "m") if cases[0].get(k) is not None
        ][:3]
    return ", ".join(words)


def sentence(error: BaseException) -> str:
    """An error as the one sentence a person can act on."""
    text = str(error).strip()
    first = text.partition(" ")[0].rstrip(".,")
    named = any(mark in first for mark in "_/:.")  # a parameter or a path is written as it is
    return (text if named else text[:1].upper() + text[1:]) or type(error).__name__
