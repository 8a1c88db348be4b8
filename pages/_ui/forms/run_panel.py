"""The Run button of a comparison, what pressing it will cost, and what keeps it from being pressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from fusescope.analysis import estimate
from fusescope.charts import numbers
from fusescope.charts.numbers import plural
from fusescope.core.machine import environment, stage_times
from fusescope.core.records import BenchSpec
from fusescope.jobs import kinds, submit
from fusescope.kernels import build
from fusescope.masks import counting
from pages._ui.app import device
from pages._ui.forms import busy
from pages._ui.widgets.text import md, sentence


@contextmanager
def collect(problems: list[str]) -> Iterator[None]:
    """Turn a refused choice into a sentence and go on drawing: a widget that is not drawn would lose its
    value."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        problems.append(sentence(error))


def draw(key: str, problems: list[str], cost: str) -> bool:
    """Whether Run was pressed; ``cost`` is the sentence under the button, "" while the choice is not
    valid."""
    pressed = st.button(
        "Run", type="primary", disabled=not cost, width="stretch", key=key, shortcut="Ctrl+Enter"
    )
    for problem in problems:
        st.error(md(problem))
    if cost:
        st.caption(cost + _queued())
    _other_processes()
    busy.offer()
    return pressed


def cost(kind: str, spec: BenchSpec, what: str, more: str = "") -> str:
    """ "Run takes about 40 s here, on NVIDIA H200: 2 cases × 5 implementations"; ``more`` follows. A whole
    sentence: next to it may stand a result that other hardware took milliseconds for."""
    name = device.facts(spec.device).get("device_name") or spec.device
    work = f"{plural(len(spec.cases), 'case')} × {plural(len(spec.impls), what)}"
    if not all(map(counting.countable, spec.cases)):
        return f"Run measures {work} here, on {name}; no estimate: counting this mask takes minutes"
    facts = kinds.load(kind).facts(spec, _build_s)
    seconds = estimate.seconds(spec, facts, stage_times.read())
    text = f"Run takes about {numbers.rough_seconds(seconds)} here, on {name}: {work}"
    if facts.build_s:
        text += f", {numbers.rough_seconds(facts.build_s)} of it to build kernels"
    return text + more


def _queued() -> str:
    """ "; it starts after 1 job on this device", where one is at work or waits."""
    ahead = sum(job["device"] == device.current() for job in submit.queue())
    return f"; it starts after {plural(ahead, 'job')} on this device" if ahead else ""


def swept(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """One case for each value of the parameter that has several; a single case where none has."""
    several = next((k for k, v in values.items() if len(v) > 1), None)
    single = {k: v[0] for k, v in values.items()}
    return [single | {several: v} for v in values[several]] if several else [single]


def _other_processes() -> None:
    """Another user's process on the chosen GPU, by name and PID, before Run is pressed."""
    if not device.is_gpu():
        return
    uuid = device.facts(device.current()).get("device_uuid")
    for gpu in _gpus():
        for process in gpu["processes"] if gpu["uuid"] == uuid else ():
            st.warning(f"{process['name']} (PID {process['pid']}) uses this GPU and will disturb the times.")


@st.cache_data(ttl=5, show_spinner=False)
def _build_s(where: str, families: tuple[str, ...] | None = None) -> float:
    return build.seconds_missing(where, families=families)


@st.cache_data(ttl=5, show_spinner=False)
def _gpus() -> list[dict]:
    return environment.gpus()
