"""The ASGI middleware that every request passes first: Host, Origin, token; then headers and time limits.

It is part of the application that ``streamlit run app.py`` loads before the server accepts a connection, so
no request, static file, upload or WebSocket comes around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from pages._ui.guard import headers, hosts, login, slow
from pages._ui.guard.token import Secret

_COOKIE_S = 30 * 86400
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass
class Door:
    """Middleware around ``app``; ``path`` is where cookies belong."""

    app: Any
    secret: Secret
    names: hosts.Names
    path: str = "/"

    stands: ClassVar[bool] = False
    """Whether this process serves through a door."""

    def __post_init__(self) -> None:
        type(self).stands = True

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        visit = Visit(scope)
        answer = self.refusal(visit)
        if scope["type"] == "websocket":
            if answer is not None:
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self.app(scope, receive, send)
            return
        known = self.names.serve(visit.host, visit.reached)
        policy = headers.page_policy(visit.host) if known else headers.DOWNLOAD
        begun = False

        async def complete(message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message = message | {"headers": headers.complete(list(message.get("headers", ())), policy)}
            await send(message)

        if answer is not None:
            await answer(scope, receive, complete)
            return
        try:
            await self.app(scope, slow.timed(receive), complete)
        except slow.TooSlow:
            if not begun:
                await _refused(408, "The request came too slowly.")(scope, receive, complete)

    def refusal(self, visit: Visit) -> Response | None:
        """What to answer instead of the app; None lets the request in."""
        if not self.names.serve(visit.host, visit.reached):
            name = (hosts.split(visit.host) or ("",))[0]
            return _refused(
                403,
                f"This app does not answer to the name {name or '(none)'}; start it with "
                "make run HOSTS=that-name, or streamlit run app.py --server.allowedHosts that-name.",
            )
        if not visit.from_our_page():
            return _refused(403, "This app answers its own pages only, not those of another site or port.")
        return None if self.secret.token is None else self._unknown(visit)

    def _unknown(self, visit: Visit) -> Response | None:
        """The answer to who has not shown the token."""
        given, query = visit.token()
        cookie = f"fusescope-token-{visit.port}"
        known = any(map(self.secret.is_cookie, visit.cookies(cookie))) or self.secret.is_token(visit.bearer)
        if given is None or not visit.reads:
            return None if known else self._ask(visit, query, False)
        showed = self.secret.is_token(given)
        if not (known or showed):
            return self._ask(visit, query, True)
        # The token does not stay in the address, in the history or in a referrer.
        path = visit.path.lstrip("/\\")  # "//name" would lead to another machine
        to = f"/{quote(path)}" + (f"?{urlencode(query)}" if query else "")
        answer = Response(status_code=303, headers={"Location": to, "Cache-Control": "no-store"})
        if showed:
            self._remember(answer, cookie, visit.encrypted)
        return answer

    def _remember(self, answer: Response, cookie: str, encrypted: bool) -> None:
        answer.set_cookie(
            cookie,
            self.secret.cookie,
            max_age=_COOKIE_S,
            path=self.path,
            secure=encrypted,
            httponly=True,
            samesite="strict",
        )

    def _ask(self, visit: Visit, query: list[tuple[str, str]], wrong: bool) -> Response:
        if not visit.opens_page:
            return _refused(
                401, "This app needs its token: open the address that it printed when it started."
            )
        if visit.headers.get("sec-fetch-site") == "cross-site" and not wrong:
            page, status = login.again(), 200
        else:
            page, status = login.page(query, self.secret.where, wrong), 401
        kept = {"Content-Security-Policy": login.POLICY, "Cache-Control": "no-store"}
        return HTMLResponse(page, status, kept | ({"WWW-Authenticate": "Bearer"} if status == 401 else {}))


class Visit:
    """What the door looks at in a request."""

    def __init__(self, scope: Mapping[str, Any]):
        self.headers = Headers(scope=scope)
        self.socket = scope["type"] == "websocket"
        self.method = "GET" if self.socket else scope["method"]
        self.host = self.headers.get("host", "")
        self.reached = str((scope.get("server") or ("",))[0])
        self.path = scope["path"]
        self.encrypted = scope["scheme"] in ("https", "wss")
        self.port = (hosts.split(self.host) or ("", None))[1] or _PORTS.get(scope["scheme"], 80)
        self._query = scope.get("query_string", b"").decode("latin-1")

    @property
    def reads(self) -> bool:
        """Whether the request asks for something and changes nothing."""
        return not self.socket and self.method in ("GET", "HEAD")

    @property
    def opens_page(self) -> bool:
        """Whether a browser's window shows the answer."""
        accept = self.headers.get("accept", "*/*")
        html = "text/html" in accept or accept == "*/*"
        return self.reads and html and self.headers.get("sec-fetch-dest", "document") == "document"

    @property
    def bearer(self) -> str:
        """The token of a program: ``Authorization: Bearer …``."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        return value if kind.lower() in ("bearer", "token") else ""

    def cookies(self, name: str) -> list[str]:
        """All values of a cookie: behind a proxy a server at / and one with a prefix share name and port, and
        a browser sends the cookies of both to the second."""
        pairs = (
            pair.partition("=") for header in self.headers.getlist("cookie") for pair in header.split(";")
        )
        return [value.strip() for key, _, value in pairs if key.strip() == name]

    def token(self) -> tuple[str | None, list[tuple[str, str]]]:
        """(the token of the address, None without one; the rest of the query)."""
        pairs = parse_qsl(self._query, keep_blank_values=True)
        given = next((v for n, v in pairs if n == "token"), None)
        return given, [(n, v) for n, v in pairs if n != "token"]

    def from_our_page(self) -> bool:
        """Whether nothing says that another site's page, or one of another port, sent the request. A link
        that opens a page in a window of its own is no page's request."""
        origins = self.headers.getlist("origin")
        ours = len(origins) == 1 and hosts.same_origin(origins[0], self.host, self.encrypted)
        if not ours and (origins or not self.reads):
            return False
        if self.headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
            return True
        window = (self.headers.get("sec-fetch-mode"), self.headers.get("sec-fetch-dest"))
        return self.reads and window == ("navigate", "document")


def _refused(status: int, sentence: str) -> Response:
    kept = {"Connection": "close", "Cache-Control": "no-store"}
    return PlainTextResponse(
        f"{sentence}\n", status, kept | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
    )
