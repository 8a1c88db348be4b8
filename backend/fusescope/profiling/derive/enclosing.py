"""Which span is in which: for every event the innermost one around it that is still open when it begins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

DEEPEST = 1000
"""Levels of nesting that are distinguished; deeper spans count as lying in the one of that level."""
_MOST = 1 << 62


def find(
    start: np.ndarray, end: np.ndarray, lane: np.ndarray, spans: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(place of the innermost span around each event, -1 = none; how many spans are around it), int64.

    Events come by lane, by start, the longer of two first; times in ns. spans: those that may lie around
    others. A span ends before what begins at its end; one that outlasts the span around it goes on being the
    innermost until its own end.
    """
    spans = spans & (end > start)
    parent, depth = _nested(start, end, lane, spans)
    inner = spans & (parent >= 0)
    outlasts = np.flatnonzero(inner)[end[inner] > end[parent[inner]]]
    for one in np.unique(lane[outlasts]).tolist():
        first, last = np.searchsorted(lane, (one, one + 1))
        _walk(start, end, spans, first, last, parent, depth)
    return parent, depth


def _nested(
    start: np.ndarray, end: np.ndarray, lane: np.ndarray, spans: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same, right in every lane in which no span outlasts the one around it.

    So many spans are open as have begun before, less those that have ended; the innermost is the last that
    began one level further out.
    """
    parent, depth = np.full(len(start), -1, np.int64), np.zeros(len(start), np.int64)
    if not spans.any():
        return parent, depth
    zero, width = int(start.min()), int(end.max()) - int(start.min()) + 1
    number = lane - lane.min() if (int(lane.max()) - int(lane.min()) + 1) * width < _MOST else _dense(lane)
    if (int(number.max()) + 1) * width >= _MOST:  # times of years on thousands of lanes
        _walk_all(start, end, lane, spans, parent, depth)
        return parent, depth
    ended = np.sort(number[spans] * width + (end[spans] - zero))
    begun = np.cumsum(spans) - spans
    depth = np.minimum(begun - np.searchsorted(ended, number * width + (start - zero), "right"), DEEPEST)
    outer = np.flatnonzero(spans)
    outer = outer[np.argsort(depth[outer], kind="stable")]
    levels = depth[outer]
    inside = np.flatnonzero(depth > 0)
    # spans by level and place; what is looked for is before the event's own place, one level further out
    key = levels * len(start) + outer
    parent[inside] = outer[np.searchsorted(key, (depth[inside] - 1) * len(start) + inside) - 1]
    return parent, depth


def _dense(lane: np.ndarray) -> np.ndarray:
    return np.cumsum(np.diff(lane, prepend=lane[:1]) != 0)


def _walk_all(start, end, lane, spans, parent, depth) -> None:
    edges = [0, *(np.flatnonzero(np.diff(lane)) + 1).tolist(), len(lane)]
    for first, last in pairwise(edges):
        _walk(start, end, spans, first, last, parent, depth)


def _walk(start, end, spans, first: int, last: int, parent: np.ndarray, depth: np.ndarray) -> None:
    """Fill parent and depth of one lane's events, one by one."""
    open_: list[tuple[int, int]] = []  # end, place
    found, deep = [], []
    columns = (start[first:last].tolist(), end[first:last].tolist(), spans[first:last].tolist())
    for place, (begin, until, is_span) in enumerate(zip(*columns), first):
        while open_ and open_[-1][0] <= begin:
            open_.pop()
        deep.append(min(len(open_), DEEPEST))
        found.append(open_[deep[-1] - 1][1] if open_ else -1)
        if is_span:
            open_.append((until, place))
    parent[first:last], depth[first:last] = found, deep
