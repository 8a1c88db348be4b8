"""The Build page: start a build, follow its log, and read the compiler's figures for every kernel."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.core import doctor
from fusescope.core.machine import toolchain
from fusescope.core.sources import ARCHS
from fusescope.jobs import submit
from fusescope.kernels import report
from pages._ui.app import callbacks, device, findings, jobs, redraw, run_data, url
from pages._ui.forms import fields
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, status_text


@st.cache_data(ttl=120, show_spinner=False)
def known_archs() -> list[str]:
    """The architectures of our kernels that this machine's nvcc supports; all of them without nvcc."""
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
    """Architectures, from scratch, the button, and the current state."""
    key = state.seed("archs", [], lambda text: [url.one_of(known_archs())(a) for a in text.split(",")])
    archs = st.multiselect(
        "architectures",
        known_archs(),
        key=key,
        placeholder="those of the GPUs present" if device.devices()[0] != "cpu" else "CPU only",
        help="Targets of the CUDA kernels; no GPU is needed to compile",
    )
    state.keep("archs", ",".join(archs))
    clean = st.checkbox("from scratch", key="build/clean", help="Recompile everything, not only what changed")
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
    found = pd.Series([k["status"] for family in states().values() for k in family.values()])
    counts = found.replace("stale", "out of date").value_counts()
    st.caption(
        " · ".join(f"{n} {status}" for status, n in counts.items()) + ". Only changed sources are rebuilt."
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
    return run_id if run_id and run_data.exists(run_id) else None


@st.fragment(run_every=1.0)
def progress() -> None:
    """Progress and log of the build that runs, or how the last one ended."""
    run_id = _shown()
    if run_id is None:
        return
    run = run_data.read(run_id)
    was_live = st.session_state.get("build/was_live")
    st.session_state["build/was_live"] = run.live
    if was_live and not run.live:
        states.clear()
        built.clear()
        redraw.whole_page()
    if run.live:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            jobs.bar(run.progress)
        right.button("Cancel", key="build/cancel", on_click=callbacks.careful(submit.cancel), args=(run_id,))
    else:
        took = (
            numbers.seconds((run.finished or 0) - (run.started or 0))
            if run.finished and run.started
            else numbers.NA
        )
        st.markdown(
            f"{status_text(run.status)} in {took} · {captions.date(run.finished)}"
            + (f" · {md(run.reason)}" if run.reason else "")
        )
    log = run_data.log(run_id)
    with st.expander("Log", expanded=run.live or run.status == "failed"):
        st.code(log or "empty", language=None, height=260, wrap_lines=True)
    if run.status == "failed":
        causes = doctor.diagnose(log)
        findings.listed({"check": f.check, "status": f.status, "says": f.says, "fix": f.fix} for f in causes)


def verdict() -> None:
    """What keeps this machine from building, with the fix."""
    found = findings.examined()
    if any(f["status"] != "ok" for f in found):
        findings.verdict(found)
    findings.everything(found)


def resources(state: url.State) -> None:
    """Registers, shared memory, spills, stack of every kernel and architecture; kernels that are not built
    are named."""
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
    st.subheader("Compiler figures", anchor=False)
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
            f"Out of date or not built: {', '.join(waiting[:6])}{' …' if len(waiting) > 6 else ''}. Press "
            "Build."
        )
    if not rows:
        st.caption("No CUDA kernel is built. Choose an architecture (no GPU is needed) and press Build.")
        return
    data = pd.DataFrame(rows)
    family = fields.view(state, "family", ["all", *sorted(data["family"].unique())])
    shown = data if family == "all" else data[data["family"] == family]
    elements.table(shown, "resources", height=min(420, 40 + 36 * len(shown)))
    elements.note(
        "From ptxas, per __global__ function. Dynamic shared memory is set at launch and not included."
    )


def _function(name: str) -> str:
    """A demangled name without its argument list and return type."""
    return name.partition("(")[0].removeprefix("void ")[:80]
