"""Import of any program's Chrome trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusescope.profiling import profile
from fusescope.profiling.chrome import parallel, xprof
from fusescope.profiling.chrome.events import Decoder
from fusescope.profiling.columns import TABLES
from fusescope.profiling.derive import launches


def load(
    path: Path,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None] = lambda share, text: None,
    decoder: Decoder | None = None,
    captured: list[dict] | None = None,
    portions: int | None = None,
    metadata: dict | None = None,
) -> dict:
    """Read the trace and write the tables (see ``profile``); gives the summary.

    progress(share of the work, what is done) is called several times a second of work and may raise to stop
    it. captured: see ``profile.save``; portions: see ``parallel.read``; metadata: gets what the file says
    apart from its events. ValueError: one sentence on why the file is no trace.
    """
    name = Path(path).name
    try:
        trace, collector, count = parallel.read(
            path, lambda share, text: progress(0.6 * share, text), decoder, portions
        )
        tables = collector.finish(trace.metadata)
        trace.notes += xprof.separate(tables, collector.names)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(name) else f"{name}: {text}") from None
    if not sum(len(tables[t]["ts_ns"]) for t in (*TABLES, "memory", "counters")):
        raise ValueError(f"{trace.name} holds no event that lasts: nothing to show")
    done = [0.6]

    def report(text: str) -> None:
        done[0] = min(0.99, done[0] + 0.02)
        progress(done[0], text)

    version = trace.metadata.get("schemaVersion")
    if version not in (None, 1):
        trace.notes.append(
            f"the trace has schema version {str(version)[:20]!r}; "
            "it was read as version 1, the only one known here"
        )
    if metadata is not None:
        metadata.update(trace.metadata)
    facts = {
        "source": "chrome",
        "file": trace.name,
        "file_bytes": trace.size,
        "events": count,
        "phases": dict(collector.phases),
        "notes": trace.notes + _left_out(collector) + _only_ranges(tables),
        "metadata": _small(trace.metadata),
    }
    return profile.save(tables, target, facts, launches.devices(trace.metadata), report, captured)


def _left_out(collector) -> list[str]:
    counts = (
        (collector.malformed, "no time, no end or a negative length"),
        (collector.phases.get("None", 0), "no phase (ph), so that nobody knows what they are,"),
    )
    return [f"{count} events have {what} and are left out" for count, what in counts if count]


def _only_ranges(tables: dict) -> list[str]:
    """What is said of a file none of whose events is known as a device's or an operator: views are empty."""
    counts = {name: len(tables[name]["ts_ns"]) for name in (*TABLES, "memory", "counters")}
    ranges = counts.pop("ranges")
    if not ranges or any(counts.values()):
        return []
    return [
        "no event has the category (cat) of a kernel, copy, launch or operator, as torch.profiler writes: "
        f"all {ranges:,} are in Tables as ranges"
    ]


def _small(metadata: dict) -> dict:
    """What of a file's metadata is worth keeping: short texts and numbers, not those that name a user or a
    host."""
    keep = (
        "schemaVersion",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "record_shapes",
        "profile_memory",
        "with_stack",
        "with_modules",
        "cuda_runtime_version",
        "cuda_driver_version",
        "cupti_version",
        "traceName",
        "trace_id",
    )
    return {
        k: metadata[k]
        for k in keep
        if isinstance(metadata.get(k), str | int | float) and len(str(metadata[k])) < 500
    }
