"""Traverse: every distinct scheme of some ranges measured, with progress, ETA, and what came out of it."""

from __future__ import annotations

import itertools

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.fusion import ranks
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.search import encoding
from fusescope.search.learning import pairs
from fusescope.search.scheme.setting import Setting
from pages._ui.answer import answer, runs
from pages._ui.app import cached_chart, device, jobs, redraw, style, url
from pages._ui.fusion import runs as fusion_runs
from pages._ui.fusion import scheme
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_DEFAULTS = " ".join(f"{r.start} {r.stop - 1}" for r in encoding.DEFAULT_RANGES.values())
_MOST_LIVE = 2000  # schemes drawn while a traverse runs
_SHOWN = 12  # of the fastest schemes
_FAILURES = 100


def draw(state: url.State, setting: Setting) -> None:
    """What is to be traversed on top; below, a run of it."""
    _request(state, setting)
    run = fusion_runs.choose(state, "traverse", "run", ("traverse",), setting)
    if run is None:
        st.markdown(
            "**No scheme was measured here yet.** A traverse checks and times every distinct scheme of the ranges once."
        )
        return
    result(run)


def _request(state: url.State, setting: Setting) -> None:
    row = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    with row:
        key = state.seed("ranges", _DEFAULTS)
        said = "First and last code of each, as values or 16 bits; both counted in"
        text = st.text_input("ranges", key=key, help=said, width=300)
        key = state.seed("limit", 200, url.whole(1, 1 << 15))
        limit = st.number_input(
            "at most", 1, 1 << 15, key=key, help="Schemes, drawn evenly from the ranges", width=140
        )
    key = state.seed("segments", device.is_gpu(), lambda given: given == "yes")
    segments = st.checkbox(
        "time each segment on its own, too", key=key, help="Shows where a scheme's time goes; takes longer"
    )
    state.keep("segments", "yes" if segments else "no", "yes" if device.is_gpu() else "no")
    try:
        ranges = _ranges(text)
        count = min(limit, distinct(tuple(map(tuple, ranges))))
        spec = setting.spec() | {"ranges": ranges, "limit": limit, "segments": segments}
        submit.validate("traverse", spec)
    except (ValueError, TypeError) as error:
        st.error(md(f"{str(error)[0].upper()}{str(error)[1:]}"))
        spec, count = None, 0
    state.keep("ranges", text, _DEFAULTS)
    state.keep("limit", limit, 200)
    pressed = row.button(
        "Traverse", type="primary", disabled=spec is None, key="fusion/traverse_go", shortcut="Ctrl+Enter"
    )
    if pressed and spec:
        fusion_runs.show(state, "traverse", submit.submit("traverse", spec))
    if spec:
        st.caption(
            md(
                f"{count:,} distinct schemes, about {numbers.seconds(_guess(setting, count))}; what is measured stays, and a stopped traverse can be resumed."
            )
        )


def result(run: Run) -> None:
    """Progress while it runs, and the schemes by time."""
    if run.live:
        _live(run.id)
    else:
        answer.heading(run)
        jobs.resume(run, "fusion/resume")
        schemes(run)


@st.fragment(run_every=1.0)
def _live(run_id: str) -> None:
    run = runs.read(run_id)
    if not run.live:
        redraw.whole_page()
    answer.heading(run)
    p = run.progress
    jobs.bar(p)
    if p.done <= _MOST_LIVE:
        schemes(run)
    else:
        st.caption(
            "The chart is drawn when all are measured; so many schemes every second would hold up the measurement."
        )


def schemes(run: Run, here: bool = True) -> None:
    """The chart, the fastest as a table, what failed, and the pairs as a file. ``here``: on the Fusion page,
    which can show a scheme itself."""
    tried, baselines = fusion_runs.layers(run.id)
    right = fusion_runs.fastest(run.id)
    beside = fusion_runs.baselines(run.id)
    if not right:
        st.caption(
            "No scheme has a time yet."
            if not tried
            else f"None of {len(tried)} schemes is right; the reasons are in the run's records."
        )
        return
    theme, words = style.theme(), fusion_runs.setting_words(run)
    fig = cached_chart.once(
        ("ranks", run.id, len(tried), len(baselines), theme),
        lambda: ranks.ranks({c: ms for c, (ms, _) in right.items()}, beside, words, theme),
    )
    elements.chart(
        fig,
        f"{run.id}-ranks",
        lambda: pd.DataFrame([(c, ms) for c, (ms, _) in right.items()], columns=["code", "ms"]),
    )
    if sittings := run.environment.get("sittings"):
        st.caption(md(sat(sittings)))
    best = [r for _, r in itertools.islice(right.values(), _SHOWN)]
    rows = [*best, *sorted((r for r in baselines if r.status == "ok"), key=fusion_runs.ms)]
    unit, factor = numbers.time_unit(map(fusion_runs.ms, rows))
    st.caption(
        f"The {len(best)} fastest of {len(right):,} schemes, and the baselines; all are in the CSV file and in the chart."
    )
    table = pd.DataFrame(
        {
            "scheme": [r.impl for r in rows],
            f"time ({unit})": [fusion_runs.ms(r) * factor for r in rows],
            "× unfused": [r.speedup.median if r.speedup else None for r in rows],
            "verdict": [
                "baseline" if r.impl == "unfused" else r.speedup.verdict if r.speedup else None for r in rows
            ],
            "what it is": [r.backend for r in rows],
        }
    )
    elements.table(
        table, f"{run.id}-best", lambda: _records(tried + baselines), why=lambda row, column: _why(column)
    )
    failed = [r for r in tried if r.status != "ok"]
    with st.container(horizontal=True, gap="small"):
        if here:
            st.button("Show the fastest as a scheme", key="fusion/best", on_click=_open, args=(best[0].impl,))
        st.download_button(
            "Pairs (bits, milliseconds)",
            data=lambda: pairs.text({c: ms for c, (ms, _) in right.items()}),
            file_name=f"{run.id}.tsv",
            mime="text/tab-separated-values",
            on_click="ignore",
            key="fusion/pairs",
            help="A text file that the surrogate and `predict` read",
        )
    if failed:
        first = f", the first {_FAILURES} of them" if len(failed) > _FAILURES else ""
        with st.expander(f"{len(failed):,} schemes failed{first}"):
            for r in failed[:_FAILURES]:
                st.markdown(f"`{r.impl}` {r.status}: {md(r.reason)}")


def sat(sittings: list[dict]) -> str:
    """Of a traverse that was joined from several: on how many devices, and how much these differ."""
    devices = len({s.get("device_uuid") for s in sittings})
    words = f"Measured in {len(sittings)} sitting{'s' * (len(sittings) > 1)} on {devices} {'device' if devices == 1 else 'devices of this kind'}"
    times = [s["baselines_ms"]["unfused"] for s in sittings if "unfused" in s.get("baselines_ms", ())]
    if len(times) < 2:
        return f"{words}."
    return f"{words}; the unfused layer took {numbers.time(min(times))} to {numbers.time(max(times))} in them, and each scheme's speed-up is over the one beside it."


def _why(column: str) -> str:
    if column in ("× unfused", "verdict"):
        return "it was not sampled beside the unfused layer"
    return "the run did not say"


def _open(code: str) -> None:
    scheme.put(code)
    st.session_state["fusion/part"] = "Scheme"


def _records(records) -> pd.DataFrame:
    lines = [
        {
            "impl": r.impl,
            "status": r.status,
            "ms": fusion_runs.ms(r) if r.status == "ok" else None,
            "speedup": r.speedup and r.speedup.median,
            "low": r.speedup and r.speedup.low,
            "high": r.speedup and r.speedup.high,
            "verdict": r.speedup and r.speedup.verdict,
            "backend": r.backend,
            "reason": r.reason,
        }
        for r in records
    ]
    return pd.DataFrame(lines)


def _ranges(text: str) -> list[list[int]]:
    """Ranges out of words; ValueError with the rule."""
    words = text.replace(",", " ").replace("-", " ").replace("–", " ").split()
    if not words or len(words) % 2:
        raise ValueError(
            f"ranges are given by their first and last codes in pairs, such as {_DEFAULTS}; not by {len(words)} codes"
        )
    return [[encoding.value(a), encoding.value(b)] for a, b in zip(words[::2], words[1::2], strict=True)]


@st.cache_data(max_entries=64, show_spinner=False)
def distinct(ranges: tuple[tuple[int, int], ...]) -> int:
    """How many distinct schemes these ranges hold."""
    return len(encoding.distinct(v for first, last in ranges for v in range(first, last + 1)))


def _guess(setting: Setting, count: int) -> float:
    """Seconds: at the pace of the last traverse of this setting, else of a small GPU layer with its segments
    compiled first."""
    for run in fusion_runs.listed():
        if (
            run.kind == "traverse"
            and fusion_runs.same(run, setting)
            and run.status == "done"
            and run.started
            and run.finished
        ):
            done = len(fusion_runs.layers(run.id)[0])
            if done > 10:
                return (run.finished - run.started) / done * count
    return (120.0 if setting.compiler == "inductor" else 10.0) + 0.08 * count
