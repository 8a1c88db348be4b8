"""A profile of many ranks: time by rank, collectives, kernels compared, critical path."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.analysis.ranks import compared, straggler
from fusescope.charts import numbers
from fusescope.charts.ranks import collectives, kernels, path, time
from fusescope.charts.ranks.words import PARTS, clock
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.profiler import sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md

_LONGEST = 200  # segments of the path in the table
_UNKNOWN = "none of them is plausible: the ranks' calls were not open at once"


def by_rank(state: url.State, found: Profile) -> None:
    """Where each rank's time went, and who holds the others up."""
    rows = sentences.rows(found, "rank_time")
    _answer(found, rows)
    fig = _once(found, "time", lambda: time.bars(rows, sentences.subtitle(found), style.theme()))
    elements.chart(fig, found.name("time-by-rank"), sentences.frame(found, "rank_time"), says=_SAYS_TIME)
    fig = _once(found, "waits", lambda: collectives.waits(rows, sentences.subtitle(found), style.theme()))
    elements.chart(fig, found.name("waits"), sentences.frame(found, "rank_time"), says=_SAYS_WAITS)
    table = pd.DataFrame(
        {
            "rank": [r["rank"] for r in rows],
            "span (ms)": [r["span_ns"] / 1e6 for r in rows],
            **{
                f"{name} (%)": [100 * r[part] / r["span_ns"] if r["span_ns"] else None for r in rows]
                for part, (name, _) in PARTS.items()
            },
            "came last": [f"{r['last']:,} of {r['collectives']:,}" for r in rows],
            "held up (ms)": [r["held_up_ns"] / 1e6 for r in rows],
            "waited (ms)": [r["wait_ns"] / 1e6 for r in rows],
            "file": [r["file"] for r in rows],
        }
    )
    elements.table(table, found.name("ranks"), sentences.frame(found, "rank_time"))
    if found.has("rank_idle"):
        with st.expander("Idle time of each stream"):
            elements.table(sentences.units(sentences.frame(found, "rank_idle")), found.name("rank-idle"))
            elements.note(
                "Host wait: launched only after the stream's last activity had ended. Kernel wait: launched "
                "before, gap below 30 µs. Other: a dependency, or no launch known."
            )
    sentences.notes(found)


def of_collectives(state: url.State, found: Profile) -> None:
    """Arrival skew, overlap, and the kinds of collectives."""
    rows = sentences.rows(found, "collectives")
    if not rows:
        sentences.lacks("matched collective", "See the notes of “Time by rank” for why.")
        return
    _answer(found, sentences.rows(found, "rank_time"))
    kinds = compared.kinds(rows, sentences.rows(found, "collective_ranks"))
    zero = ((found.summary or {}).get("span_ns") or [0])[0]
    fig = _once(found, "skew", lambda: collectives.skew(rows, zero, sentences.subtitle(found), style.theme()))
    elements.chart(fig, found.name("skew"), sentences.frame(found, "collectives"), says=_SAYS_SKEW)
    fig = _once(
        found, "overlap", lambda: collectives.overlap(kinds, sentences.subtitle(found), style.theme())
    )
    elements.chart(fig, found.name("overlap"), sentences.frame(found, "collective_ranks"), says=_SAYS_OVERLAP)
    table = pd.DataFrame(kinds).assign(
        overlap=[None if k["overlap"] is None else 100 * k["overlap"] for k in kinds]
    )
    table = sentences.units(table).rename(columns={"name": "collective", "overlap": "overlap (%)"})
    elements.table(table, found.name("collective-kinds"), why=lambda row, column: _UNKNOWN)


def of_kernels(state: url.State, found: Profile) -> None:
    """Kernels whose time differs from rank to rank."""
    ranks = [r["rank"] for r in sentences.rows(found, "rank_time")]
    rows = compared.kernels(sentences.rows(found, "rank_kernels"), ranks)
    fig = _once(found, "kernels", lambda: kernels.heat(rows, ranks, sentences.subtitle(found), style.theme()))
    elements.chart(
        fig, found.name("kernels-by-rank"), sentences.frame(found, "rank_kernels"), says=_SAYS_KERNELS
    )
    shown = pd.DataFrame(
        [
            {
                "kernel": r["name"],
                "kind": r["kind"],
                "slowest rank": r["slowest"],
                "there (ms)": r["max_ns"] / 1e6,
                "median (ms)": r["median_ns"] / 1e6,
                "ratio": r["ratio"],
                "calls": f"{r['calls_min']:,}"
                + (f" to {r['calls_max']:,}" if r["calls_max"] > r["calls_min"] else ""),
                "ranks": r["ranks"],
            }
            for r in rows
        ]
    )
    elements.table(
        shown, found.name("kernels-compared"), height=420, why=lambda row, column: "most ranks do not run it"
    )
    _pair(state, found, ranks)


def _pair(state: url.State, found: Profile, ranks: list[int]) -> None:
    """The kernels of two ranks, what differs most first."""
    st.markdown("**Two ranks**")
    row = st.container(horizontal=True, gap="small")
    first = fields.pick(state, "rank_a", "rank A", ranks, ranks[0], box=row, width=120)
    second = fields.pick(state, "rank_b", "rank B", ranks, ranks[-1], box=row, width=120)
    if first == second:
        st.caption("Choose two different ranks.")
        return
    rows = compared.pair(sentences.rows(found, "rank_kernels"), first, second)
    shown = pd.DataFrame(
        {
            "kernel": [r["name"] for r in rows],
            "kind": [r["kind"] for r in rows],
            f"rank {first} (ms)": [r["first_ns"] / 1e6 if r["first_calls"] else None for r in rows],
            f"rank {second} (ms)": [r["second_ns"] / 1e6 if r["second_calls"] else None for r in rows],
            "B − A (ms)": [r["difference_ns"] / 1e6 for r in rows],
            "B / A": [r["ratio"] if r["second_calls"] else None for r in rows],
            "calls": [f"{r['first_calls']:,} / {r['second_calls']:,}" for r in rows],
        }
    )
    name = found.name(f"kernels-{first}-{second}")
    elements.table(shown, name, height=420, why=lambda row, column: "one of the two does not run it")


def of_path(state: url.State, found: Profile) -> None:
    """What the end of the job waited for."""
    rows = sentences.rows(found, "critical_path")
    fig = _once(found, "path", lambda: path.line(rows, sentences.subtitle(found), style.theme()))
    elements.chart(fig, found.name("critical-path"), sentences.frame(found, "critical_path"), says=_SAYS_PATH)
    shares = (found.summary or {}).get("critical_path") or []
    table = pd.DataFrame(
        [
            {"rank": s["rank"], "kind": s["kind"], "time (ms)": s["ns"] / 1e6, "share (%)": 100 * s["share"]}
            for s in shares
        ]
    )
    if len(table):
        elements.table(table, found.name("critical-path-shares"))
    longest = sorted(rows, key=lambda r: -r["dur_ns"])[:_LONGEST]
    if longest:
        zero = rows[0]["ts_ns"]
        st.markdown("**Longest segments**")
        elements.table(
            sentences.units(pd.DataFrame(longest), zero),
            found.name("critical-path-segments"),
            sentences.frame(found, "critical_path"),
            height=360,
            why=lambda row, column: "idle",
        )
    elements.note(
        "Walked backwards from the activity that ended last. Events between streams are not in a trace, so a "
        "gap that the launch does not explain is a dependency or launch latency."
    )


def _answer(found: Profile, rows: list[dict]) -> None:
    collectives = sentences.rows(found, "collectives") if found.has("collectives") else []
    st.markdown(f"**{_straggler(found.id, found.stamp, rows, collectives)}**")
    summary = found.summary or {}
    hosts = {r["host"] for r in summary.get("ranks", ())} - {None}
    span = summary.get("span_ns") or [0, 0]
    elements.metrics(
        [
            ("ranks", f"{len(rows):,}"),
            (
                "hosts",
                f"{len(hosts):,}" if hosts else numbers.NA,
                None if hosts else "the traces name no host",
            ),
            ("span", numbers.time((span[1] - span[0]) / 1e6), "first to last activity over all ranks"),
            ("collectives", f"{found.rows('collectives'):,}", "matched across ranks"),
        ]
    )
    clocks = summary.get("clocks", ())[1:]
    for of in clocks[:8]:
        st.caption(md(clock(of)))
    if len(clocks) > 8:
        st.caption(f"… and {len(clocks) - 8} more clocks, in summary.json.")


@st.cache_data(max_entries=32, show_spinner=False)
def _straggler(run_id: str, stamp: str, _rows: list[dict], _collectives: list[dict]) -> str:
    return straggler.sentence(_rows, _collectives)


def _once(found: Profile, name: str, make):
    return cached_chart.once((f"ranks/{name}", found.id, found.stamp, style.theme()), make)


_SAYS_TIME = (
    "Each bar is a rank from its first activity to its last. **Exposed communication** is time in which a "
    "collective ran and no compute kernel: what better overlap would save at most."
)
_SAYS_WAITS = (
    "A collective begins when the last rank comes. **Held up, alone** is the time from the last but one "
    "arrival to the last, booked on the rank that came last; **waited** is what a rank spent in collectives "
    "before that."
)
_SAYS_SKEW = (
    "Each point is a collective: how long after the first rank the last one came to it. A trend says that "
    "ranks drift apart; a level says that one is always late."
)
_SAYS_OVERLAP = "Time in collectives, summed over ranks: under a compute kernel of the same rank, or exposed."
_SAYS_KERNELS = (
    "Total time of each kernel on each rank against the median rank, collectives left out: theirs is mostly "
    "waiting. A column that is dark throughout is a slow device (clocks, power); a single cell is uneven "
    "work."
)
_SAYS_PATH = (
    "The chain of activities that determined when the job ended, on the rank where it was at each time. "
    "Shortening what is not on it does not make the job faster."
)
