"""Unions of half-open intervals of whole ns, as sorted arrays (begins, ends)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Union = tuple[np.ndarray, np.ndarray]


def union(begin: np.ndarray, end: np.ndarray) -> Union:
    """The intervals merged: disjoint, by begin; those of no length are left out."""
    kept = end > begin
    begin, end = begin[kept], end[kept]
    if not len(begin):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate([[True], begin[1:] > reach[:-1]]))
    return begin[first], reach[np.concatenate([first[1:] - 1, [len(begin) - 1]])]


def length(of: Union) -> int:
    return int((of[1] - of[0]).sum())


def several(of: Sequence[Union]) -> Union:
    """Where two or more of the unions are at once."""
    begins, ends = (np.concatenate(side) for side in zip(*of, strict=True))
    moments = np.concatenate([begins, ends])
    order = np.argsort(moments, kind="stable")
    moments, step = moments[order], np.repeat([1, -1], [len(begins), len(ends)])[order]
    many = np.cumsum(step)[:-1] > 1  # between one moment and the next; those of no length are left out
    return union(moments[:-1][many], moments[1:][many])


def common(one: Union, other: Union) -> Union:
    """Where both unions are."""
    return several([one, other])


def covered(begin: np.ndarray, end: np.ndarray, by: Union) -> np.ndarray:
    """How many ns of each interval [begin, end) lie in the union ``by``."""
    return np.maximum(_before(end, by) - _before(begin, by), 0)


def _before(when: np.ndarray, by: Union) -> np.ndarray:
    """ns of the union before each time."""
    begins, ends = by
    if not len(begins):
        return np.zeros(len(when), np.int64)
    whole = np.concatenate([[0], np.cumsum(ends - begins)])
    at = np.searchsorted(begins, when, "right")
    inside = np.maximum(at - 1, 0)
    return np.where(at > 0, whole[inside] + np.minimum(when, ends[inside]) - begins[inside], 0)


def after_waits(
    begin: np.ndarray, end: np.ndarray, line: np.ndarray, waits: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> np.ndarray:
    """Where each interval begins once the last wait inside it is over: its own begin where it holds none.
    line: on which each lies (a thread); waits: (begin, end, line) of the waits, which do not overlap on a
    line."""
    found = begin.copy()
    wait_begin, wait_end, wait_line = waits
    for one in np.unique(wait_line):
        own, mine = np.flatnonzero(line == one), np.flatnonzero(wait_line == one)
        mine = mine[np.argsort(wait_begin[mine], kind="stable")]
        last = np.searchsorted(wait_begin[mine], end[own], "right") - 1
        held = (last >= 0) & (wait_begin[mine][np.maximum(last, 0)] >= begin[own])
        found[own[held]] = np.minimum(wait_end[mine][last[held]], end[own[held]])
    return found
