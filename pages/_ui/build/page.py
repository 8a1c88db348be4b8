"""The Build page's work: start a build, follow its log, and read what the compiler said of every kernel."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import numbers, template
from fusescope.core import doctor, toolchain
from fusescope.core.sources import ARCHS
from fusescope.jobs import submit
from fusescope.kernels import report
from pages._ui.answer import runs
from pages._ui.app import callbacks, device, jobs, redraw, url
from pages._ui.home import findings
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, status_words


@st.cache_data(ttl=120, show_spinner=False)
def known_archs() -> list[str]:
    """What this machine's nvcc compiles for, and our kernels claim; all claimed ones where there is no nvcc
    to ask."""
    known = toolchain.known_archs(toolchain.detect())
    return [a for a in ARCHS if not known or a in known] + [a for a in known if a not in ARCHS]


@st.cache_data(ttl=3, show_spinner=False)
def states() -> dict:
    """built, stale, failed or not built, for every kernel of every family."""
    return report.state()


@st.cache_data(ttl=3, show_spinner=False)
def built() -> report.BuildReport | None:
    """What is built of the current sources, for the architectures of the last build; None before the
    first."""
    chain = toolchain.detect()
    return report.assemble(chain, report.last_archs(chain))


def controls(state: url.State) -> None:
    """Architectures, clean, the button, and the state of the build now."""
    key = state.seed("archs", [], lambda text: [url.one_of(known_archs())(a) for a in text.split(",")])
    archs = st.multiselect(
        "architectures",
        known_archs(),
        key=key,
        placeholder="those of the GPUs present"
        if device.devices()[0] != "cpu"
        else "none: CPU kernels alone",
        help="What CUDA kernels are compiled for; no GPU is needed. Several: one object each, in one build",
    )
    state.keep("archs", ",".join(archs))
    clean = st.checkbox(
        "from scratch", key="build/clean", help="Compile everything again instead of what changed"
    )
    live = _live()
    st.button(
        "Build",
        type="primary",
        width="stretch",
        disabled=live is not None,
        key="build/start",
        shortcut="Ctrl+Enter",
        on_click=callbacks.careful(_start),
        args=(archs, clean),
    )
    counts = pd.Series([k["status"] for family in states().values() for k in family.values()]).value_counts()
    st.caption(
        " · ".join(f"{n} {status}" for status, n in counts.items())
        + ". An edited source is always rebuilt, an unchanged one never."
    )
    chain = toolchain.detect()
    versions = {
        "nvcc": chain.nvcc and chain.nvcc.version,
        "g++": chain.gxx and chain.gxx.version,
        "torch": chain.torch_version,
    }
    st.caption(" · ".join(f"{k} {v or 'missing'}" for k, v in versions.items()))


def _start(archs: list[str], clean: bool) -> None:
    if _live():
        return  # a second click before the first was drawn
    st.session_state["build/run"] = submit.submit("build", {"archs": archs or None, "clean": clean})


def _live() -> str | None:
    return next((j["id"] for j in submit.queue() if j["kind"] == "build"), None)


def _shown() -> str | None:
    """The build to follow: one that runs, else the last one that this visitor started."""
    run_id = _live() or st.session_state.get("build/run")
    return run_id if run_id and runs.exists(run_id) else None


@st.fragment(run_every=1.0)
def progress() -> None:
    """Progress and log of the build that runs, or how the last one ended."""
    run_id = _shown()
    if run_id is None:
        return
    run = runs.read(run_id)
    was_live = st.session_state.get("build/was_live")
    st.session_state["build/was_live"] = run.live
    if was_live and not run.live:
        states.clear()
        built.clear()
        redraw.whole_page()
    if run.live:
        p = run.progress
        left, right = st.columns([5, 1], vertical_alignment="center")
        left.progress(min(1.0, p.done / p.total) if p.total else 0.0, text=jobs.progress_words(p))
        right.button("Cancel", key="build/cancel", on_click=callbacks.careful(submit.cancel), args=(run_id,))
    else:
        took = (
            numbers.seconds((run.finished or 0) - (run.started or 0))
            if run.finished and run.started
            else numbers.NA
        )
        st.markdown(
            f"{status_words(run.status)} in {took} · {template.date(run.finished)}"
            + (f" · {md(run.reason)}" if run.reason else "")
        )
    log = runs.log(run_id)
    with st.expander("Log", expanded=run.live or run.status == "failed"):
        st.code(log or "nothing yet", language=None, height=260, wrap_lines=True)
    if run.status == "failed":
        causes = doctor.diagnose(log)
        findings.listed({"check": f.check, "status": f.status, "says": f.says, "fix": f.fix} for f in causes)


def verdict() -> None:
    """What stands between this machine and a build, with the fix."""
    found = findings.examined()
    if any(f["status"] != "ok" for f in found):
        findings.verdict(found)
    findings.everything(found)


def resources(state: url.State) -> None:
    """Registers, shared memory, spills, stack of every kernel and architecture; what is not built is said."""
    done = built()
    rows = []
    for v in done.variants if done else ():
        for r in v.resources:
            rows.append(
                {
                    "family": v.family,
                    "kernel": v.variant,
                    "arch": v.arch,
                    "function": _function(r.name),
                    "registers": r.registers,
                    "static shared (B)": r.shared,
                    "spills (B)": r.spills,
                    "stack (B)": r.stack,
                    "barriers": r.barriers,
                }
            )
    st.subheader("What the compiler says", anchor=False)
    failed = [
        (f, k, s) for f, family in states().items() for k, s in family.items() if s["status"] == "failed"
    ]
    for family, kernel, s in failed:
        st.error(f"**{family}/{kernel}** does not compile: {s['error']}")
    waiting = [
        f"{f}/{k}"
        for f, family in states().items()
        for k, s in family.items()
        if s["status"] in ("stale", "not built")
    ]
    if waiting:
        st.info(
            f"Not built as the sources stand: {', '.join(waiting[:6])}{' …' if len(waiting) > 6 else ''}. Press Build."
        )
    if not rows:
        st.caption(
            "No CUDA kernel is built: choose an architecture (no GPU is needed to compile) and press Build."
        )
        return
    data = pd.DataFrame(rows)
    families = ["all", *sorted(data["family"].unique())]
    key = state.seed("family", "all", url.one_of(families))
    if st.session_state[key] not in families:
        st.session_state[key] = "all"
    family = st.segmented_control("family", families, key=key, label_visibility="collapsed", required=True)
    state.keep("family", family, "all")
    shown = data if family in (None, "all") else data[data["family"] == family]
    elements.table(shown, "resources", height=min(420, 40 + 36 * len(shown)))
    elements.note(
        "From ptxas, per __global__ function. Dynamic shared memory is known to the launcher only and in no static report."
    )


def _function(name: str) -> str:
    """A demangled name without its argument list and return type."""
    return name.partition("(")[0].removeprefix("void ")[:80]
