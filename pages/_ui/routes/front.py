"""GET / and /<page>: the HTML that a browser opens first, instead of Streamlit's."""

from __future__ import annotations

from fusescope.core.paths import ROOT
from pages._ui.guard import opening
from pages._ui.widgets import site


def routes() -> list:
    """Starlette routes for ``st.App``: home and every page of pages/."""
    from starlette.routing import Route

    names = ["", *(f.stem for f in sorted((ROOT / "pages").glob("[!_]*.py")))]
    return [Route(f"{site.root()}/{name}", _front, methods=["GET", "HEAD"]) for name in names]


async def _front(_request):
    from starlette.responses import HTMLResponse

    return HTMLResponse(opening.html(), headers={"Cache-Control": "no-cache"})
