"""What the server does once at its start: import what pages need and start the warm parent, so that the first
visitor does not wait."""

from __future__ import annotations

import gc
import importlib
import logging
import pkgutil
import threading
from contextlib import asynccontextmanager
from functools import partial

import pages._ui

_LOG = logging.getLogger("fusescope")


@asynccontextmanager
async def lifespan(_app):
    """Loads in a thread while the server already answers."""
    threading.Thread(target=_load, daemon=True, name="preload").start()
    yield {}


def _load() -> None:
    """Every module of the pages, every operator, DuckDB, plotly's lazily made classes, what is known of the
    machine; then the parent of jobs."""
    from fusescope import masks, ops

    steps = [
        partial(importlib.import_module, m.name)
        for m in pkgutil.walk_packages(pages._ui.__path__, "pages._ui.")
    ]
    steps += [partial(ops.load, name) for name in ops.names()] + [
        partial(masks.definition, name) for name in masks.names()
    ]
    for step in (*steps, _streamlit, _charts, _machine, _library, settle, _parent):
        try:
            step()
        except Exception as error:  # whoever needs it next gets the same refusal, with a page to say it on
            _LOG.warning("at the start: %s", error)


def _streamlit() -> None:
    """What Streamlit itself loads or works out on the first element that needs it."""
    importlib.import_module("streamlit.emojis")
    from streamlit import env_util

    env_util.is_repl()


def _charts() -> None:
    """plotly makes its classes on their first use, pandas its styles."""
    import pandas as pd

    from fusescope.charts import template

    fig = template.figure("", "")
    fig.add_scatter(x=[1, 2], y=[1, 2], error_y={"array": [1, 1]}, line={"width": 1}, marker={"size": 3})
    fig.add_bar(x=[1], y=[1])
    fig.add_heatmap(z=[[1]])
    fig.add_annotation(text="")
    fig.add_hline(1)
    fig.to_json()
    pd.DataFrame({"a": [1.0]}).style.format("{:.1f}").to_html()


def _machine() -> None:
    from pages._ui.app import device, findings

    for name in device.devices():
        device.facts(name)
    findings.examined()


def _library() -> None:
    from fusescope.store import library

    library.runs(limit=1)


def settle() -> None:
    """Take all that is there now out of the search for garbage: looking through all imports takes 0.1 s each
    time, through the records of a large run 0.2 s."""
    gc.collect()
    gc.freeze()


def _parent() -> None:
    from fusescope.jobs import submit

    submit.warm_up()
