"""GET /files/<run id>/<path>: files of a run folder, streamed from disk.

A route and not st.download_button, which holds the whole file in memory several times (1.56 GB for 300 MB; a
streamed file stays at 74 MB). Streamlit's checks do not cover such routes, so the Host header is checked here
(a foreign page must not reach us under a name of its own) and the path must stay inside the run folder.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from streamlit import config
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from fusescope.core.errors import RunError
from fusescope.store import library


def routes() -> list:
    """Starlette routes for ``st.App``."""
    from starlette.routing import Route

    return [Route("/files/{run_id}/{path:path}", _file, methods=["GET", "HEAD"])]


def address(run_id: str, path: str) -> str:
    """The address of a file of a run, from the site's root."""
    base = (config.get_option("server.baseUrlPath") or "").strip("/")
    return (f"/{base}" if base else "") + f"/files/{quote(run_id)}/{quote(path)}"


def resolve(run_id: str, path: str) -> Path:
    """The file on disk; RunError for an unknown run, FileNotFoundError for anything but a file inside its
    folder."""
    home = library.find(run_id).resolve()
    file = (home / path).resolve()
    inside = home in file.parents and not any(part.startswith(".") for part in file.relative_to(home).parts)
    if not inside or not file.is_file():
        raise FileNotFoundError(f"{run_id} has no file {path}")
    return file


def refused(request):
    """The answer to a request that does not come from this app's own pages, None for one that does."""
    from starlette.responses import PlainTextResponse

    if not is_host_allowed(request.headers.get("host")):
        return PlainTextResponse("this name is not in server.allowedHosts", status_code=403)
    if request.headers.get("sec-fetch-site") == "cross-site":
        return PlainTextResponse("files are served to this app's own pages only", status_code=403)
    return None


async def _file(request):
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import FileResponse, PlainTextResponse

    no = refused(request)
    if no is not None:
        return no
    run_id = request.path_params["run_id"]
    try:
        file = await run_in_threadpool(resolve, run_id, request.path_params["path"])
    except (RunError, FileNotFoundError, ValueError, OSError) as error:
        return PlainTextResponse(str(error), status_code=404)
    # Never inline: an imported run may hold anything, and must not run as a page of ours.
    headers = {
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
        "Cache-Control": "no-store",
    }
    return FileResponse(
        file, filename=f"{run_id}-{file.name}", media_type="application/octet-stream", headers=headers
    )
