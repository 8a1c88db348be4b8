"""What the server does once at its start: import the charts and the job machinery, so that the first visitor does not wait."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager


@asynccontextmanager
async def lifespan(_app):
    """Runs beside the server: loading in a thread, so that the port answers at once."""
    threading.Thread(target=_load, daemon=True, name="preload").start()
    yield {}


def _load() -> None:
    import pandas  # noqa: F401
    import plotly.graph_objects  # noqa: F401

    from backend.charts import template

    template.figure("", "").to_json()
    from backend.jobs import submit

    submit.warm_up()
