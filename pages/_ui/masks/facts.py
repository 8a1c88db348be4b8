"""The key numbers of a mask: what it keeps, what skipping could gain, and what is achieved."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from fusescope import masks
from fusescope.charts import captions, numbers
from fusescope.charts.colours import short
from pages._ui.answer import nearest
from pages._ui.app import device, run_data, url
from pages._ui.forms import mask_files
from pages._ui.masks import achieved, stats
from pages._ui.widgets import html_table
from pages._ui.widgets.text import device_text, md

OP = "attention"
"""The operator whose times are quoted."""
_TILE = 64
_EMPTY = "n/a: the mask keeps no element, so there is nothing to speed up"


def sentence(text: str, seq_q: int, seq_k: int, rows: pd.DataFrame) -> str:
    """What a mask can save and what is achieved, as Markdown; ``rows``: what was ``measured``, of this mask
    or of the nearest one. Elements and memory each allow a speed-up: the lower one is the limit."""
    known = _known(text, seq_q, seq_k)
    if not known["kept"]:
        return "This mask keeps no element."
    tiles = known["elements"] / known["sides"][_TILE]["executed"]
    said = f"Keeps {numbers.percent(known['density'])} of the elements: skipping the rest allows "
    said += f"**{numbers.ratio(1 / known['density'])}**, skipping empty {_TILE} × {_TILE} tiles "
    said += f"{numbers.ratio(tiles)}."
    if rows.empty:
        return said + " Not measured on this mask." * (known["density"] < 1)
    first = rows.iloc[0]
    where = []
    if not is_of(first, text):
        where.append(f"Not measured on this mask. Nearest measured: {_differs(first, text, seq_k)}")
    if (first.seq, first.seq_k) != (seq_q, seq_k):
        length = _length(first.seq, first.seq_k)
        where.append(
            f"length {length}" if where else f"Not measured at {_length(seq_q, seq_k)}. Nearest: {length}"
        )
    if where:
        said += f" {', '.join(where)}, where skipping allows {numbers.ratio(first.ideal)}."
    shape = f"{achieved.shape(first)} (batch × heads × length × head size)"
    if first.memory == first.memory:  # n/a where a rate or the traffic is not known
        said += f" The rate of memory allows at most **{numbers.ratio(first.memory)}** at {shape}."
        shape = "there"
    share = f"{numbers.percent(first.share)} of the lower limit"
    by = f"{md(short(first.impl))}, {numbers.time(first.ms)}"
    return f"{said} Achieved {shape}: **{numbers.ratio(first.gain)}**, {share}, by {by}{_range(rows)}."


def is_of(row, text: str) -> bool:
    """Whether a measured row is of the mask itself, not of the nearest one."""
    return achieved.same(row["mask"], text, int(row.seq_k))


def _differs(row, text: str, seq_k: int) -> str:
    """ "window 128 instead of 64, dilation 2 instead of 4": of the nearest mask, each at its own length."""
    asked, had = _resolved(text, seq_k), _resolved(row["mask"], row.seq_k)
    return md(nearest.difference("mask", asked, had).removeprefix("mask "))


def _resolved(text: str, seq_k: int) -> str:
    return str(masks.parse(text).resolved(int(seq_k)))


def _range(rows: pd.DataFrame) -> str:
    """ "; 48.6 to 64.5 % over all 4 measured at this length": the shape that is quoted is one of several."""
    if len(rows) < 2:
        return ""
    low, high = (numbers.three(100 * share) for share in (rows.share.min(), rows.share.max()))
    return (
        f"; {low} to {high} % over {'both' if len(rows) == 2 else f'all {len(rows)}'} measured at this length"
    )


def draw(text: str, seq_q: int, seq_k: int, rows: pd.DataFrame) -> None:
    """The key numbers of one mask, where they were measured, and its canonical text."""
    known = _known(text, seq_q, seq_k)
    left, right = st.columns(2)
    left.metric("elements kept", numbers.percent(known["density"]))
    right.metric(
        "ideal speed-up",
        numbers.ratio(1 / known["density"]) if known["kept"] else numbers.NA,
        help="1 / density: a kernel that skips every masked element, whatever it reads"
        if known["kept"]
        else _EMPTY,
    )
    own = rows if not rows.empty and is_of(rows.iloc[0], text) else rows.iloc[:0]
    if not own.empty:
        _achieved(own, seq_q, seq_k)
    html_table.facts([*_counts(known), *_others(own)])
    if own.empty and 0 < known["density"] < 1:
        _measure(text, seq_q, seq_k)
        if not rows.empty:
            _open_nearest(rows.iloc[0])
    html_table.code(known["resolved"])


def measured(text: str, seq_q: int, seq_k: int) -> pd.DataFrame:
    """The rows of ``achieved.of_mask`` with their limits, the shape to quote first: of this mask, else of the
    nearest one of its name; empty where nothing was measured on both such a mask and the full one."""
    here = str(device.facts(device.current()).get("device_name") or device.current())
    return _measured(text, seq_q, seq_k, here, mask_files.stamp(text), run_data.state())


@st.cache_data(max_entries=64, show_spinner=False)  # the sentence and the figures ask alike
def _measured(text: str, seq_q: int, seq_k: int, here: str, stamp, state: int) -> pd.DataFrame:
    pairs, devices = achieved.pairs(OP, state), [here, device.QUOTED]
    found = achieved.of_mask(pairs, text, seq_q, seq_k, devices)
    if found.empty and (other := achieved.nearest(pairs, text, seq_q, seq_k)):
        found = achieved.of_mask(pairs, other, seq_q, seq_k, devices)
    return achieved.with_limits(found)[0]


def _known(text: str, seq_q: int, seq_k: int) -> dict:
    return stats.of(text, seq_q, seq_k, mask_files.stamp(text))


def _achieved(rows: pd.DataFrame, seq_q: int, seq_k: int) -> None:
    """The shape to quote: its speed-up over the fastest on the full mask, and where that was measured."""
    first = rows.iloc[0]
    elsewhere = "" if (first.seq, first.seq_k) == (seq_q, seq_k) else f" at {_length(first.seq, first.seq_k)}"
    left, right = st.columns(2)
    left.metric(
        f"achieved{elsewhere}",
        numbers.ratio(first.gain),
        help="Fastest implementation on this mask over the fastest on the full mask: same shape, dtype, "
        "device and timing mode. Ratio of medians, no interval.",
    )
    right.metric(
        "of the limit",
        numbers.percent(first.share),
        help=f"achieved over {numbers.ratio(first.limit)}, the lower of what the elements allow "
        f"({numbers.ratio(first.ideal)}) and what memory does: the time of the full mask over that of "
        "reading the inputs and writing the output once, at the rate of the device",
    )
    date = captions.when(run_data.read(first.run))
    said = (
        f"{md(short(first.impl))} {numbers.time(first.ms)}; full mask: {md(short(first.full_impl))} "
        f"{numbers.time(first.full_ms)} · {achieved.shape(first)}, {md(first['dtype'])} · "
        f"{md(device_text(first.device_name))} · [run of {md(date)}]({url.link('runs', run=first.run)})"
    )
    if first.full_run != first.run:
        other = captions.when(run_data.read(first.full_run))
        said += f", full mask in [that of {md(other)}]({url.link('runs', run=first.full_run)})"
    if first.older:
        said += f". A newer source of {md(short(first.impl))} was not measured on this shape"
    st.caption(f"{said}.")


def _counts(known: dict) -> list[tuple[str, str]]:
    rows, cut = known["row_counts"], known["sides"][64]
    lines = [
        ("kept", f"{known['kept']:,} of {known['elements']:,}"),
        ("keys per query", f"{numbers.three(float(rows.mean()))} ({rows.min():,} to {rows.max():,})"),
        ("queries without keys", f"{int(np.count_nonzero(rows == 0)):,}"),
        (
            "live tiles of 64 × 64",
            f"{numbers.percent(cut['live_share'])}: {cut['full']:,} full, {cut['partial']:,} partial",
        ),
    ]
    if known["sequences"]:
        lines.append(("sequences", f"{known['sequences']}; the picture is of the first"))
    return lines


def _others(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Other shapes of that length, each with its fastest."""
    return [
        (
            achieved.shape(r),
            f"{numbers.ratio(r.gain)}, {numbers.percent(r.share)} of the limit: {short(r.impl)}",
        )
        for r in rows.iloc[1:].itertuples()
    ]


def _measure(text: str, seq_q: int, seq_k: int) -> None:
    query = {"op": OP, "mask": text, "seq": str(seq_q)} | ({} if seq_q == seq_k else {"seq_k": str(seq_k)})
    st.page_link("pages/kernels.py", label="Not measured on this mask: measure it", query_params=query)


def _open_nearest(row) -> None:
    """The measured mask that the sentence quotes."""
    query = {"mask": row["mask"], "seq": int(row.seq)}
    query |= {} if row.seq == row.seq_k else {"seq_k": int(row.seq_k)}
    name = stats.name(_resolved(row["mask"], row.seq_k))
    st.caption(f"Nearest measured: [{md(name)}]({url.link('masks', **query)})")


def _length(seq_q: int, seq_k: int) -> str:
    return f"{int(seq_q):,}" if seq_q == seq_k else f"{int(seq_q):,} × {int(seq_k):,}"
