"""Sentences and colours that views of many ranks share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusescope.charts import numbers
from fusescope.charts.colours import SERIES

PARTS = {
    "compute_ns": ("compute", SERIES[0]),
    "overlapped_ns": ("communication under compute", SERIES[3]),
    "exposed_ns": ("exposed communication", SERIES[5]),
    "memory_ns": ("memcpy/memset", SERIES[2]),
    "idle_ns": ("idle", "#B0B7BF"),
}
"""Part of a rank's time → (what it is called, colour)."""


def legend(height: int) -> dict:
    """A legend under the axis' title of a chart so many pixels high, whatever number of lines it takes."""
    return {"orientation": "h", "y": -58 / max(40, height - 150), "yanchor": "top", "traceorder": "normal"}


def clock(of: Mapping[str, Any]) -> str:
    """What is known of one clock against the first rank's, as a sentence. ``of``: one of the summary's
    clocks."""
    who = which(of["ranks"])
    if of["estimate_ns"] is None:
        return f"{who}: too few collectives shared with other hosts to estimate a clock offset; none applied."
    told = f"estimated {numbers.time(abs(of['estimate_ns']) / 1e6)} (± {numbers.time(of['spread_ns'] / 1e6)})"
    if not of["offset_ns"]:
        return f"{who}: no clock offset beyond what collectives scatter by ({told}); none is applied."
    side = "behind" if of["offset_ns"] > 0 else "ahead"
    return f"{who}: clock {side}, {told} from {of['collectives']:,} collectives; times are corrected."


def which(ranks: Sequence[int]) -> str:
    """ "Rank 3", "Ranks 8 to 15"; "Ranks 1, 3, 5 …"."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"Ranks {ranks[0]} to {ranks[-1]}"
    return f"Ranks {', '.join(map(str, ranks[:6]))}{' …' if len(ranks) > 6 else ''}"
