"""A card for each kernel family: its kernels, whether they are built for the chosen architectures, what the
compiler says of them in short, with the figures of each function on a click, and a button that builds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.numbers import plural
from fusescope.core.machine import toolchain
from fusescope.core.sources import families
from fusescope.kernels import report
from fusescope.kernels.build import default_archs, seconds_missing
from pages._ui.widgets import elements
from pages._ui.widgets.text import escape

_WORDS = {"built": "built", "stale": "out of date", "failed": "failed", "not built": "not built"}
_SIGNS = {"built": "✓", "stale": "↻", "failed": "✗", "not built": "○"}
_OLD = "built before times were kept"
_WORST = ("failed", "stale", "not built", "built")


@dataclass(frozen=True)
class Figures:
    """What the compiler says of CUDA kernels in short: the most registers per thread and static shared memory
    (bytes) of a function, and the bytes of spills of all."""

    registers: int
    shared: int
    spills: int

    @classmethod
    def of(cls, variants: Iterable[report.VariantBuild]) -> Figures | None:
        """Over all functions and architectures; None where there is no CUDA kernel."""
        found = [r for v in variants for r in v.resources]
        if not found:
            return None
        spills = sum(r.spills for r in found)
        return cls(max(r.registers for r in found), max(r.shared for r in found), spills)


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


def objects(archs: tuple[str, ...]) -> dict[str, list[report.VariantBuild]]:
    """What is built, by family."""
    done, found = built(archs), {}
    for v in done.variants if done else ():
        found.setdefault(v.family, []).append(v)
    return found


def table(variants: Iterable[report.VariantBuild]) -> pd.DataFrame:
    """A line for each ``__global__`` function and architecture; figures first, for narrow screens."""
    return pd.DataFrame(_lines(variants))


def _lines(variants: Iterable[report.VariantBuild]) -> Iterator[dict[str, object]]:
    for v in variants:
        for r in v.resources:
            yield {
                "family": v.family,
                "kernel": v.variant,
                "arch": v.arch,
                "registers": r.registers,
                "static shared (B)": r.shared,
                "spills (B)": r.spills,
                "stack (B)": r.stack,
                "barriers": r.barriers,
                "compiled (s)": v.seconds,
                "function": function(r.name),
            }


def function(name: str) -> str:
    """A demangled name without its argument list and return type."""
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return plain.partition("(")[0][:80]


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
    known, sources = objects(archs), {} if archs else families()
    with st.container(key="families"):
        for family, kernels in states(archs).items():
            with st.container(border=True, gap="xsmall"):
                own = known.get(family, [])
                _card(family, kernels, own, archs, sources)
                _details(family, own)
                if any(s["status"] != "built" for s in kernels.values()):
                    st.button(
                        "Build this family",
                        key=f"build/family/{family}",
                        disabled=live,
                        on_click=start,
                        args=(family,),
                    )


def _card(
    family: str,
    kernels: dict[str, dict],
    own: list[report.VariantBuild],
    archs: tuple[str, ...],
    sources,
) -> None:
    worst = min((s["status"] for s in kernels.values()), key=_WORST.index)
    lines = [
        f"<b>{escape(family)}</b> · {_SIGNS[worst]} {_WORDS[worst]}",
        f"<span class='fs-muted'>{plural(len(kernels), 'object')} for {' and '.join(['CPU', *archs])}</span>",
    ]
    if not archs:
        cuda = sum(v.device == "cuda" for v in sources[family].variants)
        lines.append(f"<span class='fs-muted'>{plural(cuda, 'CUDA kernel')}: choose an architecture</span>")
    lines += [f"<b>{text}</b>" for text in _in_short(own)]
    plain = []  # nothing to say of them but their state
    for name, state in kernels.items():
        text = f"{_SIGNS[state['status']]} {escape(name)}"
        if state["status"] != "built":
            lines.append(f"{text} <span class='fs-muted'>{_WORDS[state['status']]}</span>")
        elif found := Figures.of(v for v in own if v.variant == name):
            spills = _spills(found.spills)
            said = f"{found.registers} registers, {f'<b>{spills}</b>' if found.spills else spills}"
            lines.append(f"{text} <span class='fs-muted'>{said}</span>")
        else:
            plain.append(text)
    lines += [" ".join(plain)] if plain else []
    st.html(f"<div class='fs-small'>{'<br>'.join(lines)}</div>")


def _in_short(own: list[report.VariantBuild]) -> Iterator[str]:
    """The figures of a family and how long it took to compile, where they are known."""
    if found := Figures.of(own):
        shared = f"{numbers.size(found.shared)} static shared" if found.shared else "no static shared"
        yield f"up to {found.registers} registers, {shared}, {_spills(found.spills)}"
    times = [v.seconds for v in own if v.seconds is not None]
    if times:
        yield f"compiled in {numbers.seconds(sum(times))}"


def _details(family: str, own: list[report.VariantBuild]) -> None:
    """The figures of each function, made when they are opened."""
    if not any(v.resources for v in own):
        return
    shown = st.popover("Figures", key=f"build/figures/{family}", on_change="rerun", width="stretch")
    if shown.open:
        with shown:
            elements.table(table(own).drop(columns="family"), f"figures-{family}", why={"compiled (s)": _OLD})


def _spills(count: int) -> str:
    return f"{count:,} B spilled" if count else "no spills"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
