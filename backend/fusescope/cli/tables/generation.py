"""How models generate, as a table: first token, tokens, memory, and the share of the rate of memory."""

from __future__ import annotations

from collections.abc import Sequence

from fusescope.cli.output import table
from fusescope.core.records import Record

_HEAD = (
    *("mode", "phase", "batch", "prompt", "first token ms", "token p50 ms", "token p99 ms", "tokens/s"),
    *("weights MiB", "cache MiB", "activations MiB", "of memory's rate"),
)


def table_of(records: Sequence[Record]) -> str:
    """A line for each record of a generating phase, by batch, and what quantisation changes; empty where
    there is none."""
    from fusescope.charts.numbers import NA, percent, three

    body = []
    for r in sorted(records, key=lambda r: (r.impl, r.case.get("batch", 0))):
        if not (found := (r.extra or {}).get("generation")):
            continue
        token, held = found["token_ms"] or {}, found["memory"]
        figures = (found["first_ms"], token.get("p50"), token.get("p99"), found["tokens_per_s"])
        kept = (held[f"{what}_bytes"] for what in ("weights", "cache", "activations"))
        body.append(
            [
                *(r.impl, r.case["phase"], str(r.case["batch"]), str(r.case["seq"])),
                *(NA if v is None else three(v) for v in figures),
                *(NA if v is None else three(v / 2**20) for v in kept),
                NA if found["roof_share"] is None else percent(found["roof_share"]),
            ]
        )
    found = table(list(_HEAD), body, "llrrrrrrrrrr") if body else ""
    return "\n\n".join(filter(None, (found, _quantised(records))))


def _quantised(records: Sequence[Record]) -> str:
    """What quantisation changes in the outputs, a line for each record of such a mode."""
    from fusescope.charts.models import quantised
    from fusescope.charts.numbers import NA, three

    body, head = [], []
    for r in records:
        if found := quantised.changes(r):
            head = list(found)
            phase, batch = r.case.get("phase"), str(r.case.get("batch"))
            body.append([r.impl, phase, batch, *(NA if v is None else three(v) for v in found.values())])
    return table(["quantised", "phase", "batch", *head], body, "llrrrrr") if body else ""
