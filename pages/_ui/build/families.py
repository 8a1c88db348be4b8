"""A card for each kernel family: its kernels, whether they are built for the chosen architectures, what the
compiler says of them in short, and a button that builds this family."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from fusescope.charts.numbers import plural
from fusescope.core.machine import toolchain
from fusescope.core.sources import families
from fusescope.kernels import report
from fusescope.kernels.build import default_archs, seconds_missing
from pages._ui.widgets.text import escape

_WORDS = {"built": "built", "stale": "out of date", "failed": "failed", "not built": "not built"}
_SIGNS = {"built": "✓", "stale": "↻", "failed": "✗", "not built": "○"}
_WORST = ("failed", "stale", "not built", "built")
Figures = dict[tuple[str, str], tuple[int, int]]
"""(family, kernel) → (most registers, bytes of spills) over its functions and architectures."""


def targets(chosen: list[str]) -> tuple[str, ...]:
    """The architectures that pressing Build compiles for: those chosen, else those of the GPUs present."""
    if chosen:
        return tuple(sorted(chosen))
    return default_archs() if toolchain.detect().nvcc else ()


@st.cache_data(ttl=3, show_spinner=False)
def states(archs: tuple[str, ...]) -> dict[str, dict[str, dict]]:
    """Family → kernel → state, of what a build for these architectures makes."""
    found = report.state(archs)
    return {f: {k: s for k, s in kernels.items() if s["archs"]} for f, kernels in found.items()}


@st.cache_data(ttl=3, show_spinner=False)
def built(archs: tuple[str, ...]) -> report.BuildReport | None:
    """What is built of the current sources for these architectures; None where nothing is."""
    return report.assemble(toolchain.detect(), archs)


def figures(archs: tuple[str, ...]) -> Figures:
    """What the compiler says of each CUDA kernel, in short."""
    done, found = built(archs), {}
    for v in done.variants if done else ():
        if v.resources:
            most, spills = found.get((v.family, v.variant), (0, 0))
            registers = max(most, *(r.registers for r in v.resources))
            found[v.family, v.variant] = (registers, spills + sum(r.spills for r in v.resources))
    return found


def counted(archs: tuple[str, ...]) -> Counter:
    """How many kernels and bindings are in each state."""
    return Counter(_WORDS[s["status"]] for kernels in states(archs).values() for s in kernels.values())


def summary(archs: tuple[str, ...]) -> str:
    """What pressing Build would do: "For CPU and sm_90a: 36 of 100 built, 64 not built; about 3 min."."""
    counts = counted(archs)
    total, done = counts.total(), counts["built"]
    where = " and ".join(["CPU", *archs])
    if done == total:
        return f"For {where}: all {total} kernels and bindings are built; nothing to do."
    rest = ", ".join(f"{n} {word}" for word, n in counts.items() if word != "built")
    left = seconds_missing("cuda" if archs else "cpu", archs)
    about = f" About {_minutes(left)} to build." if left else ""
    return f"For {where}: {done} of {total} kernels and bindings built, {rest}.{about}"


def cards(archs: tuple[str, ...], live: bool, start) -> None:
    """The cards; ``start(family)`` is the callback of a card's button."""
    known, sources = figures(archs), {} if archs else families()
    with st.container(key="families"):
        for family, kernels in states(archs).items():
            with st.container(border=True, gap="xsmall"):
                _card(family, kernels, known, archs, sources)
                if any(s["status"] != "built" for s in kernels.values()):
                    st.button(
                        "Build this family",
                        key=f"build/family/{family}",
                        disabled=live,
                        on_click=start,
                        args=(family,),
                    )


def _card(family: str, kernels: dict[str, dict], known: Figures, archs: tuple[str, ...], sources) -> None:
    worst = min((s["status"] for s in kernels.values()), key=_WORST.index)
    lines = [
        f"<b>{escape(family)}</b> · {_SIGNS[worst]} {_WORDS[worst]}",
        f"<span class='fs-muted'>{plural(len(kernels), 'object')} for {' and '.join(['CPU', *archs])}</span>",
    ]
    if not archs:
        cuda = sum(v.device == "cuda" for v in sources[family].variants)
        lines.append(f"<span class='fs-muted'>{plural(cuda, 'CUDA kernel')}: choose an architecture</span>")
    plain = []  # nothing to say of them but their state
    for name, state in kernels.items():
        text = f"{_SIGNS[state['status']]} {escape(name)}"
        if state["status"] != "built":
            lines.append(f"{text} <span class='fs-muted'>{_WORDS[state['status']]}</span>")
        elif (family, name) in known:
            registers, spills = known[family, name]
            lines.append(f"{text} <span class='fs-muted'>{registers} registers, {_spilled(spills)}</span>")
        else:
            plain.append(text)
    lines += [" ".join(plain)] if plain else []
    st.html(f"<div class='fs-small'>{'<br>'.join(lines)}</div>")


def _spilled(count: int) -> str:
    return f"<b>{count:,} B spilled</b>" if count else "no spills"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
