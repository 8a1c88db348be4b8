"""The views of the Masks page under the pictures: tiles, balance, storage, speed-up and scores."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from fusescope.analysis import hardware, waves
from fusescope.charts import numbers
from fusescope.charts.masks import balance, storage, tiles
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields, mask_files
from pages._ui.masks import gain, scores, stats
from pages._ui.masks.stats import SIDES
from pages._ui.widgets import elements


@dataclass(frozen=True)
class Look:
    """What a view draws from: one or two masks on seq_q × seq_k."""

    texts: tuple[str, ...]
    seq_q: int
    seq_k: int
    subtitle: str
    theme: str

    def known(self) -> dict[str, dict]:
        """Mask → its figures (``stats.of``)."""
        return {t: stats.of(t, self.seq_q, self.seq_k, mask_files.stamp(t)) for t in self.texts}

    @property
    def key(self) -> tuple:
        """Everything that a chart of the masks depends on."""
        stamps = tuple(mask_files.stamp(t) for t in self.texts)
        return self.texts, stamps, self.seq_q, self.seq_k, self.subtitle, self.theme

    def name(self, view: str) -> str:
        """The file name of what the view saves."""
        return f"mask-{view}-{self.seq_q}x{self.seq_k}"


def draw(view: str, state: url.State, look: Look) -> None:
    """Draw the view of that name."""
    _VIEWS[view](state, look)


def side(state: url.State) -> int:
    """The tile size of a view."""
    return fields.segments(state, "tile", "tile size", SIDES, 64)


def _tiles(state: url.State, look: Look) -> None:
    known, rows = look.known(), []
    for text, about in known.items():
        for s, cut in about["sides"].items():
            rows.append(
                {
                    "mask": text,
                    "tile": s,
                    "tiles": cut["total"],
                    "live": cut["live"],
                    "full": cut["full"],
                    "partial": cut["partial"],
                    "live (%)": 100 * cut["live_share"],
                    "in live tiles (%)": 100 * cut["executed"] / about["elements"],
                    "computed / kept (×)": cut["executed"] / about["kept"] if about["kept"] else None,
                }
            )
    data = pd.DataFrame(rows)
    data["computed / kept (×)"] = data["computed / kept (×)"].astype(float)
    shown = data if len(known) > 1 else data.drop(columns="mask")
    shares = {
        stats.name(t): [k["sides"][s]["executed"] / k["elements"] for s in SIDES] for t, k in known.items()
    }
    densities = {stats.name(t): k["density"] for t, k in known.items()}
    fig = cached_chart.once(
        ("mask tiles", repr((shares, densities)), look.subtitle, look.theme),
        lambda: tiles.executed(shares, densities, SIDES, look.subtitle, look.theme),
    )
    elements.chart(fig, look.name("work"))
    elements.table(shown, look.name("tiles"), data, why={"computed / kept (×)": "the mask keeps no element"})
    elements.note(
        "In live tiles: share of all elements computed by a kernel that skips empty tiles. Full tiles "
        "need no bitmap."
    )


def _balance(state: url.State, look: Look) -> None:
    known = look.known()
    tile = side(state)
    rows = {stats.name(t): k["row_counts"] for t, k in known.items()}
    tile_rows = {stats.name(t): k["sides"][tile]["per_row"] for t, k in known.items()}
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=385):
            _along(look, rows, "keys per query", 1, "keys", ("row", "keys"))
        with st.container(width=385):
            what = f"live tiles per row of {tile} queries"
            _along(look, tile_rows, what, tile, "tile-rows", ("tile row", "live"))
    _waves(state, look, tile, rows, tile_rows)


def _along(look: Look, counts: dict, what: str, step: int, name: str, columns: tuple[str, str]) -> None:
    """A chart of counts per row of each mask, with all of them as CSV."""
    fig = cached_chart.once(
        (what, *look.key), lambda: balance.along(counts, what, step, look.subtitle, look.theme)
    )
    row, count = columns
    frames = lambda: [pd.DataFrame({"mask": t, row: range(len(v)), count: v}) for t, v in counts.items()]  # noqa: E731
    elements.chart(fig, look.name(name), lambda: pd.concat(frames()))


def _waves(state: url.State, look: Look, tile: int, rows, tile_rows) -> None:
    """What the imbalance costs where one block processes one tile row."""
    names = [p.name for p in hardware.known() if p.name in waves.SMS]
    a, b, c = st.columns(3)
    gpu = fields.pick(state, "gpu", "GPU", names, "H200 SXM", box=a)
    places = fields.whole(state, "blocks", "blocks per multiprocessor", 1, 32, 2, box=b)
    heads = fields.whole(state, "heads", "heads × sequences", 1, 4096, 12, box=c)
    fields.refuse(state)
    lines = []
    for text, lengths in tile_rows.items():
        one = [int(n) for n in lengths]
        for order, blocks in (
            ("first row first", one * heads),
            ("last row first", one[::-1] * heads),
            ("longest first", sorted(one * heads, reverse=True)),
        ):
            plan = waves.schedule(blocks, waves.SMS[gpu] * places)
            keys = rows[text]
            lines.append(
                {
                    "mask": text,
                    "block order": order,
                    "waves": plan.waves,
                    "lower bound": plan.even,
                    "with dependencies": plan.makespan,
                    "slots in use (%)": 100 * plan.busy,
                    "load imbalance (max/mean)": max(one) * len(one) / max(1, sum(one)),
                    "keys per query (max/mean)": float(keys.max() / keys.mean()) if keys.any() else 0.0,
                }
            )
    data = pd.DataFrame(lines)
    elements.table(
        data if len(tile_rows) > 1 else data.drop(columns="mask"), look.name("waves"), data, why={}
    )
    elements.note(
        f"A calculation, not a measurement: one block per row of {tile}-tiles and head, as long as its "
        "live tiles, scheduled on "
        f"{waves.SMS[gpu]} multiprocessors × {places} as slots free up. Lower bound and with dependencies "
        "count tiles one after "
        "another; slots in use is the share of slots in use over that time."
    )


def _storage(state: url.State, look: Look) -> None:
    known = look.known()
    tile = side(state)
    sizes = {stats.name(t): k["sides"][tile]["storage"] for t, k in known.items()}
    lines = []
    for text, about in known.items():
        cut = about["sides"][tile]
        for form, count in cut["storage"].items():
            dense, bits = (cut["break_even"][against].get(form) for against in ("dense", "bitmap"))
            lines.append(
                {
                    "mask": text,
                    "format": form,
                    "bytes": count,
                    "size": numbers.size(count),
                    "of dense (%)": 100 * count / cut["storage"]["dense"],
                    "smaller than dense up to": _share(form, dense),
                    "smaller than bitmap up to": _share(form, bits),
                    "this mask": numbers.percent(
                        cut["live_share"] if form in ("bsr", "tiles") else about["density"]
                    ),
                }
            )
    data = pd.DataFrame(lines)
    elements.chart(storage.bars(sizes, look.subtitle, look.theme), look.name("bytes"))
    elements.table(data if len(known) > 1 else data.drop(columns="mask"), look.name("storage"), data, why={})
    elements.note(
        "The pattern only, no values; 32-bit indices (64-bit from 2^31 elements on). BSR stores its "
        "tiles as bytes; tiles is a "
        "tile list with one flag per tile and a bitmap for each partial one. Break-even counts every "
        "live tile as partial."
    )


def _share(form: str, value: float | None) -> str:
    if value is None:
        return "–"
    of = "tiles live" if form in ("bsr", "tiles") else "kept"
    return f"{numbers.percent(value)} {of}" if value else "never"


_VIEWS = {
    "Tiles": _tiles,
    "Balance": _balance,
    "Storage": _storage,
    "Speed-up": gain.draw,
    "Scores": scores.draw,
}
NAMES = list(_VIEWS)
