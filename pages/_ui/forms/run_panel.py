"""The Run button of a comparison, what pressing it will cost, and what keeps it from being pressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from fusescope.charts import numbers
from fusescope.core.machine import environment
from pages._ui.app import device
from pages._ui.widgets.text import md, plural, sentence


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
        st.caption(cost)
    _other_processes()
    return pressed


def cost(cases: int, implementations: int, what: str, seconds: float, where: str) -> str:
    """ "2 cases × 5 implementations, about 40 s on NVIDIA H200"."""
    name = device.facts(where).get("device_name") or where
    work = f"{plural(cases, 'case')} × {plural(implementations, what)}"
    return f"{work}, about {numbers.seconds(seconds)} on {name}"


def swept(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """One case for each value of the parameter that has several; a single case where none has."""
    several = next((k for k, v in values.items() if len(v) > 1), None)
    single = {k: v[0] for k, v in values.items()}
    return [single | {several: v} for v in values[several]] if several else [single]


def _other_processes() -> None:
    """Somebody else's process on the chosen GPU, by name and PID, before Run is pressed."""
    if not device.is_gpu():
        return
    uuid = device.facts(device.current()).get("device_uuid")
    for gpu in _gpus():
        for process in gpu["processes"] if gpu["uuid"] == uuid else ():
            st.warning(f"{process['name']} (PID {process['pid']}) uses this GPU and will disturb the times.")


@st.cache_data(ttl=5, show_spinner=False)
def _gpus() -> list[dict]:
    return environment.gpus()
