"""The exhaustive sweep: every distinct scheme of some ranges measured, with progress, and the result."""

from __future__ import annotations

import itertools

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import ranks
from fusescope.charts.numbers import plural
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.search import encoding
from fusescope.search.learning import pairs
from pages._ui.answer import answer, workers
from pages._ui.app import cached_chart, device, jobs, url
from pages._ui.forms import fields
from pages._ui.fusion import place, runs, scheme
from pages._ui.fusion.runs import Layer
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md

_DEFAULTS = " ".join(f"{r.start} {r.stop - 1}" for r in encoding.DEFAULT_RANGES.values())
_MOST_LIVE = 2000  # schemes drawn while a sweep runs
_SHOWN = 12  # of the fastest schemes
_FAILURES = 100


def draw(state: url.State, asked: Layer) -> None:
    """A run, the recorded one at first; the request for a new one folded below."""
    run = runs.choose(state, "traverse", "run", ("traverse",), asked)
    if run is None:
        st.markdown(
            "**No scheme measured yet.** A sweep checks and times every distinct scheme of the ranges once."
        )
    else:
        result(run)
    if not asked.here:
        st.caption("To start a sweep, choose this machine under “measured on”.")
        return
    with st.expander("New sweep of this layer", expanded=run is None or not runs.same(run, asked)):
        _form(state, asked)


def _form(state: url.State, asked: Layer) -> None:
    setting = asked.setting
    row = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    with row:
        key = state.seed("ranges", _DEFAULTS)
        said = "First and last code of each range, inclusive, as values or 16 bits"
        text = st.text_input("ranges", key=key, help=said, width=300)
    said = "Most schemes, sampled evenly from the ranges"
    limit = fields.whole(state, "limit", "at most", 1, 1 << 15, 200, box=row, help=said, width=140)
    key = state.seed("segments", device.is_gpu(), lambda given: given == "yes")
    segments = st.checkbox(
        "also time each segment alone", key=key, help="Breaks a scheme's time down; takes longer"
    )
    state.keep("segments", "yes" if segments else "no", "yes" if device.is_gpu() else "no")
    try:
        fields.refuse(state)
        workers.choose(state)
        ranges = _ranges(text)
        count = min(limit, distinct(tuple(map(tuple, ranges))))
        spec = setting.spec() | {"ranges": ranges, "limit": limit, "segments": segments}
        spec |= workers.chosen(state.page, "traverse")
        submit.validate("traverse", spec)
    except (ValueError, TypeError) as error:
        st.error(md(f"{str(error)[0].upper()}{str(error)[1:]}"))
        spec, count = None, 0
    state.keep("ranges", text, _DEFAULTS)
    pressed = row.button(
        "Start sweep", type="primary", disabled=spec is None, key="fusion/traverse_go", shortcut="Ctrl+Enter"
    )
    if pressed and spec:
        runs.start(state.page, "traverse", spec)
    if spec:
        st.caption(
            md(
                f"{count:,} distinct schemes, about {numbers.seconds(_estimate(asked, count))}; a "
                "cancelled sweep keeps its "
                "results and can be resumed."
            )
        )


def result(run: Run) -> None:
    """Progress while it runs, and the schemes by time."""
    if run.live:
        jobs.follow(run.id, answer.heading, _so_far, cancel=True)
        workers.draw(run, [])
    else:
        answer.heading(run)
        workers.draw(run, [])  # all alike: a sweep refuses others
        jobs.resume(run, "fusion/resume")
        schemes(run)


def _so_far(run: Run) -> None:
    if run.progress.done <= _MOST_LIVE:
        schemes(run)
    else:
        st.caption("The chart appears when the sweep is done: drawing so many schemes would disturb it.")


def schemes(run: Run, here: bool = True) -> None:
    """The chart, the fastest as a table, what failed, and the pairs as a file. ``here``: on the Fusion page,
    which can show a scheme itself."""
    tried, baselines = runs.layers(run.id)
    correct = runs.fastest(run.id)
    baselines_ms = runs.baselines(run.id)
    if not correct:
        st.caption(
            "No scheme has a time yet."
            if not tried
            else f"None of {len(tried):,} schemes is correct; the run's log says why."
        )
        return
    theme, caption = style.theme(), runs.caption(run)
    fig = cached_chart.once(
        ("ranks", run.id, len(tried), len(baselines), theme),
        lambda: ranks.ranks({c: ms for c, (ms, _) in correct.items()}, baselines_ms, caption, theme),
    )
    elements.chart(
        fig,
        f"{run.id}-ranks",
        lambda: pd.DataFrame([(c, ms) for c, (ms, _) in correct.items()], columns=["code", "ms"]),
    )
    if sessions := run.environment.get("sittings"):
        st.caption(md(sessions_text(sessions)))
    best = [r for _, r in itertools.islice(correct.values(), _SHOWN)]
    rows = [*best, *sorted((r for r in baselines if r.status == "ok"), key=lambda r: r.ms)]
    unit, factor = numbers.time_unit(r.ms for r in rows)
    st.caption(
        f"The {len(best)} fastest of {len(correct):,} schemes, and the baselines. The chart and the CSV "
        "have all. Over unfused: sampled together, with a verdict; over the others: ratios of medians."
    )
    table = pd.DataFrame(
        {
            "scheme": [ranks.named(r.impl) for r in rows],
            f"time ({unit})": [r.ms * factor for r in rows],
            "over unfused (×)": [r.speedup.median if r.speedup else None for r in rows],
        }
        | {
            f"over {ranks.named(name)} (×)": [ms / r.ms for r in rows]
            for name, ms in baselines_ms.items()
            if name != "unfused"
        }
        | {
            "verdict": [
                "baseline" if r.impl == "unfused" else r.speedup.words if r.speedup else None for r in rows
            ],
            "implementation": [r.backend for r in rows],
        }
    )
    elements.table(
        table, f"{run.id}-best", lambda: _records(tried + baselines), why=lambda row, column: _why(column)
    )
    failed = [r for r in tried if r.status != "ok"]
    with st.container(horizontal=True, gap="small"):
        if here:
            st.button("Show the fastest scheme", key="fusion/best", on_click=_open, args=(best[0].impl, run))
        st.download_button(
            "Pairs (bits, milliseconds)",
            data=lambda: pairs.text({c: ms for c, (ms, _) in correct.items()}),
            file_name=f"{run.id}.tsv",
            mime="text/tab-separated-values",
            on_click="ignore",
            key="fusion/pairs",
            help="A text file for the cost model and `predict`",
        )
    if failed:
        first = f", the first {_FAILURES} of them" if len(failed) > _FAILURES else ""
        with st.expander(f"{len(failed):,} failed schemes{first}"):
            for r in failed[:_FAILURES]:
                st.markdown(f"`{r.impl}` {r.status}: {md(r.reason)}")


def sessions_text(sessions: list[dict]) -> str:
    """Of a sweep measured in several sessions: on how many devices, and how much these differ."""
    devices = len({s.get("device_uuid") for s in sessions})
    where = "one device" if devices == 1 else f"{devices} devices of this kind"
    text = f"Measured in {plural(len(sessions), 'session')} on {where}"
    times = [s["baselines_ms"]["unfused"] for s in sessions if "unfused" in s.get("baselines_ms", ())]
    if len(times) < 2:
        return f"{text}."
    return (
        f"{text}; the unfused layer took {numbers.time(min(times))} to {numbers.time(max(times))} in "
        "them, and each "
        "speed-up is over the unfused layer of the same session."
    )


def _why(column: str) -> str:
    if column in ("over unfused (×)", "verdict"):
        return "not interleaved with the unfused layer"
    return "not recorded"


def _open(code: str, run: Run) -> None:
    """The scheme on the Scheme tab, with the layer that the run measured (a callback)."""
    place.put(run)
    scheme.put(code)
    st.session_state["fusion/part"] = "Scheme"


def _records(records) -> pd.DataFrame:
    lines = [
        {
            "impl": r.impl,
            "status": r.status,
            "ms": r.ms,
            "speedup": r.speedup and r.speedup.median,
            "low": r.speedup and r.speedup.low,
            "high": r.speedup and r.speedup.high,
            "verdict": r.speedup and r.speedup.words,
            "backend": r.backend,
            "reason": r.reason,
        }
        for r in records
    ]
    return pd.DataFrame(lines)


def _ranges(text: str) -> list[list[int]]:
    """The ranges in a text; ValueError with the rule."""
    codes = text.replace(",", " ").replace("-", " ").replace("–", " ").split()
    if not codes or len(codes) % 2:
        raise ValueError(
            f"give pairs of first and last codes, such as {_DEFAULTS}; this is {plural(len(codes), 'code')}"
        )
    return [[encoding.value(a), encoding.value(b)] for a, b in zip(codes[::2], codes[1::2], strict=True)]


@st.cache_data(max_entries=64, show_spinner=False)
def distinct(ranges: tuple[tuple[int, int], ...]) -> int:
    """How many distinct schemes these ranges hold."""
    return len(encoding.distinct(v for first, last in ranges for v in range(first, last + 1)))


def _estimate(asked: Layer, count: int) -> float:
    """Seconds, at the pace of the last sweep of this setting, else of a small GPU layer plus compilation."""
    for run in runs.listed():
        finished = run.kind == "traverse" and run.status == "done" and run.started and run.finished
        if finished and runs.same(run, asked):
            done = len(runs.layers(run.id)[0])
            if done > 10:
                return (run.finished - run.started) / done * count
    return (120.0 if asked.setting.compiler == "inductor" else 10.0) + 0.08 * count
