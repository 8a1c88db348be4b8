"""What the server does once at its start: import what pages need and start the warm parent, so that the first visitor does not wait."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import threading
from contextlib import asynccontextmanager


@asynccontextmanager
async def lifespan(_app):
    """Runs beside the server: loading in a thread, so that the port answers at once."""
    threading.Thread(target=_load, daemon=True, name="preload").start()
    yield {}


def _load() -> None:
    """Every module of the pages, every operator, DuckDB, plotly's lazily made classes, what is known of the machine; then the parent of jobs."""
    import pages._ui

    for module in pkgutil.iter_modules(pages._ui.__path__):
        importlib.import_module(f"pages._ui.{module.name}")

    from backend import ops
    from backend.charts import template
    from backend.jobs import submit
    from backend.store import library
    from pages._ui import device, findings

    for name in ops.names():
        ops.load(name)
    template.figure("", "").to_json()
    try:
        for name in device.devices():
            device.facts(name)
        findings.examined()
        library.runs(limit=1)
        submit.warm_up()
    except Exception as error:  # whoever needs it next gets the same refusal, with a page to say it on
        logging.getLogger("fusescope").warning("at the start: %s", error)
