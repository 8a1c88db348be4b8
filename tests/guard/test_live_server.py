"""The door of a server as ``streamlit run app.py`` starts it, asked by raw sockets: every route of Streamlit
and of ours."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from unittest.mock import MagicMock

import pytest
from streamlit.web.server.starlette.starlette_app import create_streamlit_routes

from fusescope.core.paths import ROOT
from pages._ui.guard import opening, slow
from pages._ui.routes import downloads, perfetto

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def routes() -> list[str]:
    """A path for every route that the server has, with something in the place of parameters."""
    found = [*create_streamlit_routes(MagicMock()), *downloads.routes(), *perfetto.routes()]
    paths = {r.path.partition("{")[0] + ("x" if "{" in r.path else "") or "/" for r in found}
    pages = {f"/{f.stem}" for f in (ROOT / "pages").glob("[!_]*.py")}
    script = next((opening.STATIC / "static" / "js").glob("PlotlyChart.*.js"))
    others = {"/", "/perfetto/index.html", "/favicon.png", "/index.html", "/nothing"}
    return sorted(paths | pages | others | {f"/static/js/{script.name}"})


def cookie(live, **headers) -> str:
    """What a browser keeps after its first visit."""
    status, answer, _ = live.ask("GET", f"/?token={live.token}", **headers)
    assert status == 303 and answer["location"].endswith("/")
    return answer["set-cookie"].partition(";")[0]


def test_the_routes_are_all_there():
    assert {"/_stcore/health", "/_stcore/host-config", "/_stcore/metrics", "/_stcore/stream"} <= set(routes())
    assert any(r.startswith("/_stcore/upload_file") for r in routes()) and any("files" in r for r in routes())


@pytest.mark.long
def test_every_route_wants_the_token_and_its_own_host_and_origin(live):
    good = cookie(live)
    own = f"http://127.0.0.1:{live.port}"
    for path, method in itertools.product(routes(), METHODS):
        case = (path, method)
        writes = {} if method in ("GET", "HEAD") else {"origin": own}
        for shown in ({}, {"cookie": good + "x"}, {"authorization": "Bearer " + "x" * 48}):
            assert live.ask(method, path, **writes, **shown)[0] == 401, case
        refused = (
            {"host": "evil.example"},
            {"host": f"evil.example:{live.port}"},
            {"origin": "http://127.0.0.1:1"},
            {"origin": "null"},
            {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
        )
        for wrong in refused:
            assert live.ask(method, path, **{"cookie": good} | writes | wrong)[0] == 403, (case, wrong)
        status, headers, body = live.ask(method, path, cookie=good, **writes)
        assert status != 401 and not body.startswith("This app"), (case, status, body[:80])
        assert "frame-ancestors 'self'" in headers["content-security-policy"], case
        assert headers["x-frame-options"] == "SAMEORIGIN" and headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers, case


def test_the_websocket_opens_for_our_page_alone(live):
    good, own = cookie(live), f"http://127.0.0.1:{live.port}"
    assert live.websocket(cookie=good, origin=own) == 101
    for wrong in (
        {"origin": own},
        {"cookie": good},
        {"cookie": good, "origin": "http://127.0.0.1:1"},
        {"cookie": good, "origin": f"http://localhost:{live.port}"},
        {"cookie": good, "origin": "https://x.streamlit.app"},
        {"cookie": good, "origin": "http://evil.example", "host": "evil.example"},
        {"cookie": good, "origin": own, "host": None},
        {"cookie": good + "x", "origin": own},
    ):
        assert live.websocket(**wrong) in (400, 403), wrong
    assert live.websocket("/anything", origin=own) == 403


def test_a_tunnel_with_another_local_port_works(live):
    """ssh -L 9999:127.0.0.1:PORT: Host and Origin carry the browser's port."""
    good = cookie(live, host="localhost:9999")
    assert good.startswith("fusescope-token-9999=")
    assert live.ask("GET", "/", host="localhost:9999", cookie=good)[0] == 200
    assert live.websocket(host="localhost:9999", origin="http://localhost:9999", cookie=good) == 101


def test_requests_that_are_none_do_not_get_in(live):
    good = cookie(live)
    for text in (
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nCookie: {good}\r\n\r\n",
        f"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nCookie: {good}\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: \xff\xfe=\x01\r\nConnection: close\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x00\x00",
    ):
        answer = live.raw(text.encode("latin-1"))
        assert not answer or int(answer.split()[1]) in (400, 401, 403), (text, answer[:80])


def test_the_login_page_says_where_the_address_is_and_takes_the_token(live):
    status, headers, body = live.ask("GET", "/kernels?op=%22%3E%3Cscript%3E", accept="text/html")
    assert status == 401 and "token=" in body and 'name="token"' in body
    assert str(live.home / "state" / "token") in body
    assert "<script" not in body and 'value="&quot;&gt;&lt;script&gt;"' in body
    assert "default-src 'none'" in headers["content-security-policy"]
    status, headers, _ = live.ask("GET", f"/kernels?token={live.token}&op=add&seq=64")
    assert status == 303 and headers["location"] == "/kernels?op=add&seq=64"
    assert "not the token" in live.ask("GET", "/?token=wrong", accept="text/html")[2]


@pytest.mark.long
def test_half_requests_are_closed_and_others_are_served_meanwhile(live):
    good = cookie(live)
    halves = [live.connect() for _ in range(300)]
    for n, half in enumerate(halves):
        if n % 3:
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    begun = time.monotonic()
    assert live.ask("GET", "/_stcore/health", cookie=good)[0] == 200 and time.monotonic() - begun < 5
    trickle = halves[-1]
    closed = 0
    while time.monotonic() - begun < slow.HEADERS_S + 15 and closed < len(halves):
        with contextlib.suppress(OSError):
            trickle.sendall(b"x")
        time.sleep(1)
        closed = sum(map(_closed, halves))
        if time.monotonic() - begun < 5:
            assert closed >= len(halves) - slow.MOST - 20
    assert closed == len(halves)
    for half in halves:
        half.close()


def _closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.long
def test_quick_requests_over_one_connection_are_not_cut(live):
    good = cookie(live)
    head = f"Host: 127.0.0.1:{live.port}\r\nCookie: {good}\r\n\r\n"
    request = f"GET /_stcore/health HTTP/1.1\r\n{head}".encode()
    with live.connect() as connection:
        for _ in range(8):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"ok"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(slow.HEADERS_S / 6)
