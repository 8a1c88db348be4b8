"""Whether a profile's times can be: what the reading of a file cannot see."""

from __future__ import annotations

import numpy as np

from fusescope.profiling.table import ABSENT, same

_OVERLAP = 2.0
"""Kernels of a stream follow one another. Programmatic dependent launch and replayed graphs let them overlap,
but not twice over."""


def notes(tables: dict[str, dict]) -> list[str]:
    """Sentences on what cannot be: streams in which kernels and copies take more time than passes."""
    ts, dur, device, stream = (
        np.concatenate([tables[t][c] for t in ("kernels", "copies")])
        for c in ("ts_ns", "dur_ns", "device", "stream")
    )
    known = (stream != ABSENT) & (device != ABSENT)
    if not known.any():
        return []
    ts, dur = ts[known], dur[known]
    _, first, lane = np.unique(same([device[known], stream[known]]), return_index=True, return_inverse=True)
    lane = lane.reshape(-1)
    begin = np.full(len(first), np.iinfo(np.int64).max)
    end, total = np.full(len(first), np.iinfo(np.int64).min), np.zeros(len(first), np.int64)
    np.minimum.at(begin, lane, ts)
    np.maximum.at(end, lane, ts + dur)
    np.add.at(total, lane, dur)
    worst = int(np.argmax(total / np.maximum(end - begin, 1)))
    if total[worst] <= _OVERLAP * max(1, int(end[worst] - begin[worst])):
        return []
    return [
        f"kernels and copies of stream {int(stream[known][first[worst]])} take {total[worst] / 1e6:,.3g} ms "
        f"within {(end[worst] - begin[worst]) / 1e6:,.3g} ms: times or streams of this file are wrong"
    ]
