"""What one scheme gains, over what, and why: its times next to those of the same sweep, and its traffic."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers, verdicts
from fusescope.charts.fusion import explain, ranks
from fusescope.charts.numbers import plural
from fusescope.core.records import Record, Run
from fusescope.search import encoding, sessions
from fusescope.search.scheme import codegen, layer
from fusescope.search.scheme.setting import Setting
from pages._ui.app import url
from pages._ui.fusion import runs
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements
from pages._ui.widgets.text import device_text, md

BASELINES = {
    "unfused": "15 calls of PyTorch functions",
    "compile": "torch.compile of the 15 operators",
    "compile_sdpa": "torch.compile of a layer with scaled_dot_product_attention",
    "hand_fused": "our kernels, fused by hand",
}
SHORT = {name: ranks.named(name) for name in BASELINES}
_CLOSE = 1.01
"""Schemes up to this many times the fastest one's time count as close to it."""


def sentence(asked: Layer, canonical: str) -> None:
    """The answer: how fast this scheme is, over what, and whether it is the fastest."""
    run = runs.sweep_of(asked)
    known = runs.records_of(asked, canonical)
    if run is None:
        st.markdown(f"**{_kernels(canonical)}.** {_of_own(known)}")
        return
    tried = runs.fastest(run.id)
    if canonical not in tried:
        best = next(iter(tried.values()), None)
        least = f" The fastest of {len(tried):,} takes {numbers.time(best[0])}." if best else ""
        st.markdown(f"**{_kernels(canonical)}.** {_of_own(known)}{least}")
        return
    ms, record = tried[canonical]
    times = [t for t, _ in tried.values()]
    close = sum(t <= _CLOSE * times[0] for t in times) - 1
    gains = ", ".join(f"{numbers.ratio(gain)} {SHORT[name]}" for name, _, gain, _ in _gains(run, record))
    of = f" of a layer of {runs.model_text(asked.setting)}"
    place = f"Fastest of {len(tried):,} measured schemes{of}" if ms == times[0] else _behind(ms, times, of)
    near = f" {plural(close, 'other')} within 1 %." if ms == times[0] and close else ""
    st.markdown(f"**{place}: {numbers.time(ms)}**, {gains}. {_kernels(canonical)}.{near}")


def over(run: Run, record: Record) -> None:
    """The scheme over each baseline as a table, and where that was measured."""
    rows = [
        {
            "over": SHORT[name],
            "time": numbers.time(took),
            "speed-up (×)": gain,
            "interval": interval,
        }
        for name, took, gain, interval in _gains(run, record)
    ]
    why = "ratio of medians: not sampled together"
    elements.table(pd.DataFrame(rows), f"{run.id}-{record.impl}-over", why={"interval": why})
    when = f"[{md(captions.when(run))}]({url.link('runs', run=run.id)})"
    st.caption(f"Layer time on {md(device_text(run.device_name))}, {when}; {_words(run)}")


def why(asked: Layer, canonical: str) -> None:
    """What fusion saves: kernels, minimum traffic, and the part of each fused segment, with the cost of a cut
    where a search of this layer has measured it."""
    segments = codegen.plan(canonical, asked.setting)
    apart = sum(_bytes(range(i, i + 1), asked.setting) for i in range(encoding.OPERATORS))
    together = sum(_bytes(s.operators, asked.setting) for s in segments)
    st.markdown(
        f"**Why:** {plural(len(segments), 'kernel')} instead of {encoding.OPERATORS}, and "
        f"{numbers.size(together)} of minimum traffic instead of {numbers.size(apart)}."
    )
    effects = _effects(asked)
    rows = []
    for s in segments:
        if len(s.operators) == 1:
            continue
        saved = sum(_bytes(range(i, i + 1), asked.setting) for i in s.operators)
        row = {"fused": f"{s.span} {_short(s.names)}"}
        row["saves"] = numbers.size(saved - _bytes(s.operators, asked.setting))
        if effects:
            inside = [effects[i] for i in list(s.operators)[:-1] if effects.get(i) is not None]
            hand = s.how == "attention" and effects.get(None)
            known = -hand if hand else max(inside, default=None)
            row["a cut adds"] = None if known is None else explain.signed(known)
        rows.append(row)
    if rows:
        unknown = "not told apart from zero by the schemes that the search measured"
        elements.table(pd.DataFrame(rows).sort_index(), f"why-{canonical}", why={"a cut adds": unknown})
    if effects:
        st.caption(
            "Saves: minimum traffic. A cut adds: the largest effect of one cut in that segment (for the "
            "attention: of taking torch instead), fitted to the schemes of the search."
        )


def _gains(run: Run, record: Record) -> list[tuple[str, float, float, str | None]]:
    """(baseline, its ms, speed-up, its interval or None) for each baseline with a time. The unfused layer was
    sampled in turn with each scheme, so that its time is the one beside this scheme."""
    found = []
    for name in BASELINES:
        ms = runs.baselines(run.id).get(name)
        if ms is None:
            continue
        if name == "unfused" and record.speedup:
            s = record.speedup
            ends = verdicts.interval(s.words, s.low, s.high) or "too few samples"
            found.append((name, record.ms * s.median, s.median, ends))
        else:
            found.append((name, ms, ms / record.ms, None))
    return found


def _words(run: Run) -> str:
    known = runs.baselines(run.id)
    return "; ".join(f"{SHORT[name]}: {text}" for name, text in BASELINES.items() if name in known) + "."


def _behind(ms: float, times: list[float], of: str) -> str:
    rank = sum(t < ms for t in times) + 1
    close = ms <= _CLOSE * times[0]
    least = (
        "within 1 % of the fastest" if close else f"{numbers.ratio(ms / times[0])} the time of the fastest"
    )
    return f"Rank {rank:,} of {len(times):,} measured schemes{of}, {least}"


def _of_own(known: list[tuple[Run, Record]]) -> str:
    timed = [r for _, r in known if r.status == "ok"]
    if timed:
        gain = timed[0].speedup
        more = f", {numbers.ratio(gain.median)} unfused: {gain.words}" if gain else ""
        return f"Measured: {numbers.time(timed[0].ms)}{more}."
    if known:
        return f"{known[0][1].status}: {md(known[0][1].reason)}"
    return "This scheme has not been measured on this layer yet."


def _kernels(canonical: str) -> str:
    sizes = [len(part) for part in encoding.parts(canonical)]
    return f"{plural(len(sizes), 'kernel')}, {sum(n > 1 for n in sizes)} of them fused"


def _bytes(operators: range, setting: Setting) -> float:
    cost = layer.cost(operators, setting.sizes(), setting.dtype)
    return cost.bytes_read + cost.bytes_written


def _effects(asked: Layer) -> dict[int | None, float | None]:
    """Operator after which a cut is → ms it adds, of the largest search of this layer; None: of taking the
    hand-written attention."""
    mine = [r for r in runs.listed() if r.kind == "search" and runs.same(r, asked)]
    run = runs.largest(mine)
    found = sessions.found(run.id) if run else None
    return {b["after"]: b["effect_ms"] for b in (found or {}).get("boundaries", ()) if _sure(b)}


def _sure(boundary: dict) -> bool:
    """Whether an effect is known and its interval excludes zero."""
    low, high = boundary["low"], boundary["high"]
    known = boundary["effect_ms"] is not None and low is not None and high is not None
    return known and not low <= 0 <= high


def _short(names: list[str]) -> str:
    return " + ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"
