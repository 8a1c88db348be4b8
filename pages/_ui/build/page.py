"""The Build page: start a build, follow its log, and read the compiler's figures for every kernel."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import captions, numbers
from fusescope.core import doctor
from fusescope.core.machine import toolchain
from fusescope.core.sources import ARCHS
from fusescope.jobs import submit
from pages._ui.app import callbacks, device, findings, jobs, redraw, run_data, url
from pages._ui.build import families
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, status_text

_TAIL = 18
"""Lines of the compilers' output shown while they run."""


@st.cache_data(ttl=120, show_spinner=False)
def known_archs() -> list[str]:
    """The architectures of our kernels that this machine's nvcc supports; all of them without nvcc."""
    known = toolchain.known_archs(toolchain.detect())
    return [a for a in ARCHS if not known or a in known] + [a for a in known if a not in ARCHS]


def controls(state: url.State) -> tuple[str, ...]:
    """Architectures, from scratch, the button, and what it would do; the architectures it compiles for."""
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
    targets = families.targets(archs)
    st.caption(f"{families.summary(targets)} Only changed sources are rebuilt.")
    chain = toolchain.detect()
    versions = {
        "nvcc": chain.nvcc and chain.nvcc.version,
        "g++": chain.gxx and chain.gxx.version,
        "torch": chain.torch_version,
    }
    st.caption(" · ".join(f"{k} {v or 'missing'}" for k, v in versions.items()))
    return targets


def _start(archs: list[str], clean: bool, family: str | None = None) -> None:
    if _live():
        return  # a second click before the first was drawn
    spec = {"archs": archs or None, "clean": clean} | ({"families": [family]} if family else {})
    st.session_state["build/run"] = submit.submit("build", spec)


def cards(targets: tuple[str, ...]) -> None:
    """A card for each family."""
    st.subheader("Kernel families", anchor=False)
    start = callbacks.careful(lambda family: _start(list(targets), False, family))
    families.cards(targets, _live() is not None, start)


def _live() -> str | None:
    return next((j["id"] for j in submit.queue() if j["kind"] == "build"), None)


def _shown() -> str | None:
    """The build to follow: one that runs, else the last one that this visitor started."""
    run_id = _live() or st.session_state.get("build/run")
    return run_id if run_id and run_data.exists(run_id) else None


@st.fragment(run_every=2.0)  # as the sidebar, which shows the same job
def progress() -> None:
    """Progress and log of the build that runs, or how the last one ended."""
    run_id = _shown()
    if run_id is None:
        return
    run = run_data.read(run_id)
    was_live = st.session_state.get("build/was_live")
    st.session_state["build/was_live"] = run.live
    if was_live and not run.live:
        families.states.clear()
        families.built.clear()
        redraw.whole_page()
    if run.live:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            jobs.bar(run)
        right.button("Cancel", key="build/cancel", on_click=callbacks.careful(submit.cancel), args=(run_id,))
    else:
        took = (
            numbers.seconds((run.finished or 0) - (run.started or 0))
            if run.finished and run.started
            else numbers.NA
        )
        what = "" if run.status != "done" else f": {md(run.progress.message)}"
        st.markdown(
            f"{status_text(run.status)} in {took}{what} · {captions.date(run.finished)}"
            + (f" · {md(run.reason)}" if run.reason else "")
        )
    log = run_data.log(run_id)
    if run.live:
        st.code("\n".join(log.splitlines()[-_TAIL:]) or "starting …", language=None, wrap_lines=True)
    else:
        with st.expander("Compiler output", expanded=run.status == "failed"):
            elements.listing(log or "empty", None, 260)
    if run.status == "failed":
        causes = doctor.diagnose(log)
        findings.listed({"check": f.check, "status": f.status, "says": f.says, "fix": f.fix} for f in causes)


def verdict() -> None:
    """What keeps this machine from building, with the fix."""
    found = findings.examined()
    if any(f["status"] != "ok" for f in found):
        findings.verdict(found)
    findings.everything(found)


def resources(targets: tuple[str, ...]) -> None:
    """What does not compile; and registers, shared memory, spills, stack of every kernel, folded."""
    for family, kernels in families.states(targets).items():
        for kernel, known in kernels.items():
            if known["status"] == "failed":
                st.error(f"**{family}/{kernel}** does not compile: {md(known['error'])}")
    data = families.table(v for own in families.objects(targets).values() for v in own)
    if data.empty:
        st.caption(
            f"No CUDA kernel is built for {' and '.join(targets)} yet."
            if targets
            else "CPU kernels have no compiler figures. Choose an architecture; no GPU is needed."
        )
        return
    with st.expander("Compiler figures of all kernels"):
        elements.table(data, "resources", height=min(420, 40 + 36 * len(data)))
        elements.note(
            "From ptxas, per `__global__` function. Dynamic shared memory is set at launch and not included."
        )
