"""What quantised weights, or an fp8 cache, change in a model's outputs, as its record holds it."""

from __future__ import annotations

from fusescope.core.records import Record


def changes(record: Record) -> dict[str, float | None]:
    """By column: what quantisation changes in the outputs; empty for a mode without."""
    found = (record.extra or {}).get("quantised")
    if not found:
        return {}
    same = found["same_token"]
    return {
        "output error": found["relative_l2"],
        "KL mean (nats)": found["kl_mean"],
        "KL most (nats)": found["kl_most"],
        "same next token (%)": None if same is None else 100 * same,
    }
