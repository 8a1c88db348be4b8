"""Search in the timeline: events by a part of their name, how many and how long they are, and from one to the
next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import streamlit as st

from fusescope.charts import numbers
from fusescope.store import timeline
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler import data
from pages._ui.profiler.data import Profile

_MARKS = 200  # of a lane that the chart shows
_AROUND = 12  # times an event's length that is shown when it is gone to


@dataclass(frozen=True)
class Found:
    """The events that match: starts and ends (ns) over all lanes by start, and starts in view by lane."""

    starts: np.ndarray = field(default_factory=lambda: np.array([], np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.array([], np.int64))
    marks: dict[str, list[int]] = field(default_factory=dict)


def ask(state: url.State, found: Profile, lanes: list[str], begin: int, end: int, box) -> Found | None:
    """A field in ``box``, and what is found in the lanes on show, None while nothing is asked; ``begin`` and
    ``end``: the span in view."""
    text = fields.text(
        state,
        "find",
        "find in these lanes",
        found.id,
        box,
        placeholder="part of a name: gemm, softmax, aten::mm …",
    )
    if not text:
        return None
    parts = {n: timeline.matches(data.events(str(found.path), n, found.stamp), text) for n in lanes}
    starts, ends = (np.concatenate([part[side] for part in parts.values()]) for side in (0, 1))
    order = np.argsort(starts, kind="stable")
    marks = {n: [int(t) for t in part[0] if begin <= t < end][:_MARKS] for n, part in parts.items()}
    return Found(starts[order], ends[order], marks)


def controls(found: Found, begin: int, end: int, go: Callable[[tuple[int, int]], None]) -> None:
    """What was found, and buttons to the match before and after the span's middle; ``go(span)`` shows one."""
    count = len(found.starts)
    if not count:
        st.caption("Nothing in these lanes has such a name.")
        return
    lengths = found.ends - found.starts
    longest = int(np.argmax(lengths))
    after, before = _next(found, begin, end)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for word, place in (("‹ match", before), ("match ›", after), ("longest match", longest)):
            span = () if place is None else (_span(found, place),)
            st.button(word, key=f"profiler/find/{word}", on_click=go, args=span, disabled=not span)
        st.caption(
            f"{count:,} {'match' if count == 1 else 'matches'}, {numbers.time(float(lengths.sum()) / 1e6)} "
            f"total, the longest {numbers.time(float(lengths[longest]) / 1e6)}."
        )


def _next(found: Found, begin: int, end: int) -> tuple[int | None, int | None]:
    """(the first match that begins after the span's middle, the last that ends before it)."""
    middle = (begin + end) // 2
    after = int(np.searchsorted(found.starts, middle, "right"))
    before = np.flatnonzero(found.ends < middle)
    return after if after < len(found.starts) else None, int(before[-1]) if len(before) else None


def _span(found: Found, place: int) -> tuple[int, int]:
    """The match in the middle of some room."""
    first, last = int(found.starts[place]), int(found.ends[place])
    room = max(1000, _AROUND * (last - first)) // 2
    middle = (first + last) // 2
    return middle - room, middle + room
