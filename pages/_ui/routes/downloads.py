"""GET /files/<run id>/<path>: files of a run folder, streamed from disk.

A route and not st.download_button, which holds the whole file in memory several times (1.56 GB for 300 MB; a
streamed file stays at 74 MB). Who may ask is checked by ``guard.door``; here the path must stay inside the
run folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from fusescope.core.errors import RunError
from fusescope.store import library
from fusescope.store.bounded import plain
from pages._ui.guard import headers
from pages._ui.widgets import site


def routes() -> list:
    """Starlette routes for ``st.App``."""
    from starlette.routing import Route

    return [Route(f"{site.root()}/files/{{run_id}}/{{path:path}}", _file, methods=["GET", "HEAD"])]


def address(run_id: str, path: str) -> str:
    """The address of a file of a run, from the site's root."""
    return f"{site.root()}/files/{quote(run_id)}/{quote(path)}"


def resolve(run_id: str, path: str) -> Path:
    """The file on disk; RunError for an unknown run, FileNotFoundError for anything but a file inside its
    folder."""
    home = library.find(run_id)
    real = Path(os.path.realpath(home))  # Path.resolve raises RuntimeError for a link to itself
    file = Path(os.path.realpath(real / path))
    inside = real in file.parents and not any(part.startswith(".") for part in file.relative_to(real).parts)
    if not inside or not plain.is_file(file) or home.is_symlink():
        raise FileNotFoundError(f"{run_id} has no file {path}")
    return file


def kept() -> dict[str, str]:
    """Headers of what a browser saves and never shows: an imported run may hold anything, and must not run as
    a page of ours."""
    return {"Content-Security-Policy": headers.DOWNLOAD, "Cache-Control": "no-store"}


async def _file(request):
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import FileResponse, PlainTextResponse

    run_id = request.path_params["run_id"]
    try:
        file = await run_in_threadpool(resolve, run_id, request.path_params["path"])
    except (RunError, FileNotFoundError, ValueError, OSError) as error:
        return PlainTextResponse(str(error), status_code=404)
    return FileResponse(
        file, filename=f"{run_id}-{file.name}", media_type="application/octet-stream", headers=kept()
    )
