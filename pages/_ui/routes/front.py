"""GET / and /<page>: the HTML that a browser opens first, instead of Streamlit's; and plotly.js, which a
browser compiles while it loads."""

from __future__ import annotations

from functools import cache

from fusescope.core.paths import ROOT
from pages._ui.guard import opening
from pages._ui.widgets import site

# Without it Chromium compiles most of plotly.js when it is first called, on the page's own thread: 690 to
# 860 ms of CPU, 200 to 230 with it; the thread that loads the file takes 820 to 910 ms instead of 190.
_HINT = b"//# allFunctionsCalledOnLoad\n"


def routes() -> list:
    """Starlette routes for ``st.App``: home and every page of pages/."""
    from starlette.routing import Route

    names = ["", *(f.stem for f in sorted((ROOT / "pages").glob("[!_]*.py")))]
    return [Route(f"{site.root()}/{name}", _front, methods=["GET", "HEAD"]) for name in names]


def middleware() -> list:
    """What ``st.App`` wraps around its routes, within the door."""
    from starlette.middleware import Middleware

    return [Middleware(Compiled, names=tuple(opening.chunks("PlotlyChart")))]


class Compiled:
    """Answers for the chunks ``names`` ("static/js/….js") with the hint before Streamlit's bytes. It is no
    route, because Streamlit takes none below /static/."""

    def __init__(self, app, names: tuple[str, ...]):
        self.app = app
        self.files = {f"{site.root()}/{name}": name for name in names}

    async def __call__(self, scope, receive, send) -> None:
        from starlette.responses import Response

        name = self.files.get(scope["path"]) if scope["type"] == "http" else None
        if name is None or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        # The name changes with the content, so browsers keep it for good.
        forever = {"Cache-Control": "public, immutable, max-age=31536000"}
        await Response(_hinted(name), media_type="text/javascript", headers=forever)(scope, receive, send)


async def _front(_request):
    from starlette.responses import HTMLResponse

    return HTMLResponse(opening.html(), headers={"Cache-Control": "no-cache"})


@cache
def _hinted(name: str) -> bytes:
    return _HINT + (opening.STATIC / name).read_bytes()
