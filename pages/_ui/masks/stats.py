"""Figures of a mask, computed once: one pass over its elements in tiles of 8, the rest from the counts."""

from __future__ import annotations

import itertools

import numpy as np
import streamlit as st

from fusescope import masks
from fusescope.charts.masks import picture
from fusescope.masks import layout

SIDES = (8, 16, 32, 64, 128, 256)
MOST = 1 << 30
"""Most elements of a mask that the page draws."""
_EXACT = 1 << 24  # up to here the picture is made from the elements; above, the whole from the tiles of 8


def check(seq_q: int, seq_k: int) -> None:
    """ValueError for more elements than the page draws."""
    if seq_q * seq_k > MOST:
        raise ValueError(f"the largest mask drawn here has 2^30 elements; {seq_q:,} × {seq_k:,} is more")


def name(text: str) -> str:
    """A mask as headings and charts name it: "sliding window:left=128,right=128"; of a file, its name."""
    if text.startswith("file:"):
        return text.removeprefix("file:").rpartition("/")[2]
    kind, colon, values = text.partition(":")
    return f"{kind.replace('_', ' ')}{colon}{values}"


@st.cache_data(max_entries=48, show_spinner="Counting elements …")
def of(text: str, seq_q: int, seq_k: int, stamp: str) -> dict:
    """Figures of one mask as plain values; ``sides``: {tile side: figures of the mask cut into such
    tiles}."""
    bound = masks.parse(text).bind(seq_q, seq_k)
    fine = layout.tiles(bound, tile=SIDES[0])
    cuts = {SIDES[0]: fine}
    for smaller, side in itertools.pairwise(SIDES):
        cuts[side] = cuts[smaller].coarser(side // smaller)
    rows = fine.row_counts
    return {
        "resolved": str(bound.mask.resolved(seq_k)),
        "sequences": bound.sequences,
        "elements": fine.elements,
        "kept": fine.kept,
        "density": fine.density,
        "row_counts": rows.reshape(-1),
        "sides": {side: _figures(cut) for side, cut in cuts.items()},
        "whole": _whole(fine) if seq_q * seq_k > _EXACT else None,
    }


@st.cache_data(max_entries=64, show_spinner=False)
def pixels(text: str, seq_q: int, seq_k: int, region: tuple[int, int, int, int] | None, stamp: str) -> tuple:
    """(shares, row edges, column edges) of a region (first query, last, first key, last), of the first
    sequence; None: all."""
    if region is None:
        known = of(text, seq_q, seq_k, stamp)["whole"]
        if known is not None:
            return known
    top, bottom, left, right = region or (0, seq_q, 0, seq_k)
    bound = masks.parse(text).bind(seq_q, seq_k)
    rows, columns = picture.edges(top, bottom), picture.edges(left, right)

    def rows_of(first, last):
        kept = bound.block(first, last)
        return kept[0] if kept.ndim == 3 else kept

    return picture.shrink(rows_of, rows, columns), rows, columns


@st.cache_data(max_entries=512, show_spinner=False)
def density(text: str, seq_q: int, seq_k: int, stamp: str) -> float:
    """Share of elements kept."""
    return layout.tiles(masks.parse(text), seq_q, seq_k, tile=256).density


def _figures(cut: layout.Tiles) -> dict:
    return {
        "total": cut.total,
        "live": cut.live,
        "full": cut.full,
        "partial": cut.partial,
        "live_share": cut.live_share,
        "executed": cut.executed,
        "imbalance": cut.imbalance,
        "per_row": cut.live_map.sum(axis=-1).reshape(-1),
        "storage": layout.storage(cut),
        "break_even": {against: layout.break_even(cut, against) for against in ("dense", "bitmap")},
    }


def _whole(fine: layout.Tiles) -> tuple:
    """The picture of everything from counts: as many tiles per pixel as it takes."""
    factor = -(-max(fine.counts.shape[-2:]) // picture.PIXELS)
    cut = fine.coarser(factor)
    counts = cut.counts if cut.counts.ndim == 2 else cut.counts[0]
    rows, columns = ([*range(0, size, cut.tile), size] for size in (cut.seq_q, cut.seq_k))
    return (counts / cut.sizes).astype(np.float32), np.asarray(rows), np.asarray(columns)
