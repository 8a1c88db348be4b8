"""How the door becomes part of the app: its middleware, what runs with the server, and what the server says
when it starts."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import streamlit as st
from streamlit import config, runtime
from streamlit.runtime import Runtime

from pages._ui.guard import door, headers, hosts, saved_files, sessions, slow, token
from pages._ui.widgets import site

_EVERYWHERE = ("0.0.0.0", "::", "")


class Entrance:
    """The secret and the names of one server. SystemExit with a sentence for a setting that is not valid."""

    def __init__(self) -> None:
        try:
            self.secret = token.load()
        except ValueError as error:
            raise SystemExit(str(error)) from None
        sessions.keep_few()
        saved_files.keep()
        self.address = config.get_option("server.address") or ""
        further = config.get_option("server.allowedHosts")
        bound = None if self.address in _EVERYWHERE else self.address
        self.names = hosts.Names.of((bound, *further))
        # The door has checked Host and Origin more strictly; Streamlit's own list knows no address of ours.
        config.set_option("server.allowedHosts", [])

    def middleware(self) -> list:
        """What ``st.App`` wraps around all of its routes."""
        from starlette.middleware import Middleware

        return [Middleware(door.Door, secret=self.secret, names=self.names, path=site.root() or "/")]

    def failures(self) -> dict:
        """The answer to an uncaught error, which passes no middleware."""
        from starlette.responses import PlainTextResponse

        async def failed(_request, _error):
            answer = PlainTextResponse("This request failed; the server's output says why.\n", 500)
            answer.raw_headers = headers.complete(answer.raw_headers, headers.DOWNLOAD)
            return answer

        return {Exception: failed}

    def lifespan(self, inner: Callable) -> Callable[..., AbstractAsyncContextManager]:
        """Time limits for connections and the address, around what else runs with the server."""

        @asynccontextmanager
        async def run(app):
            from uvicorn.protocols.http.auto import AutoHTTPProtocol

            connections = slow.Connections()
            connections.note(AutoHTTPProtocol)
            watching = asyncio.create_task(connections.watch())
            print(self.welcome(), flush=True)
            async with inner(app) as state:
                yield state
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching

        return run

    def welcome(self) -> str:
        """The address to open, with the token; what is given up without one."""
        port = config.get_option("server.port")
        name = "127.0.0.1" if self.address in _EVERYWHERE else self.address
        at = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        secret = self.secret.token
        scheme = "https" if config.get_option("server.sslCertFile") else "http"
        lines = [f"FuseScope: {scheme}://{at}{site.root()}/" + (f"?token={secret}" if secret else "")]
        lines.append(f"from elsewhere: ssh -L {port}:{at} <this machine>, then the same address")
        if self.secret.warning:
            lines.append(self.secret.warning)
        if secret is None:
            lines.append(
                f"No token: every user of this machine, and every program that reaches {at}, can run files "
                f"as {_user()}."
            )
        if self.address not in ("127.0.0.1", "localhost", "::1") and scheme == "http":
            lines.append(
                "Served beyond this machine without encryption: who reads the network reads the token. "
                "Prefer ssh -L, or a proxy with TLS."
            )
        return "\n".join(lines)


def require() -> None:
    """Draw nothing where a server runs that has no door, as ``streamlit run pages/kernels.py`` starts one."""
    if runtime.exists() and type(runtime.get_instance()) is Runtime and not door.Door.stands:
        st.error("This server lets everybody in: start the app with make run, or streamlit run app.py.")
        st.stop()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "the user who started it"
