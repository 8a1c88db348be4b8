"""Who is let in: every Host × Origin × token × method, against rules written down a second time here."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from pages._ui.guard import door, hosts
from pages._ui.guard.token import Secret

TOKEN = "0123456789abcdef0123"
SECRET = Secret(TOKEN, "the test")
PORT = 8501

# Host header → whether the app, reached at 127.0.0.1:8501, answers to it; gpu.example is a further name
HOSTS = {
    "127.0.0.1:8501": True,
    "localhost:8501": True,
    "LocalHost.:9000": True,  # ssh -L with another port
    "tab.localhost:8501": True,
    "[::1]:8501": True,
    "gpu.example": True,
    "a.lab.example:443": True,
    "": False,
    "evil.example:8501": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example:8501": False,
    "lab.example": False,
    "user@localhost:8501": False,
    "localhost:8501/x": False,
    "localhost:99999": False,
    "localhost localhost": False,
    "[::1": False,
    "2130706433:8501": False,
    "0.0.0.0:8501": False,
}
# Origin header made of the Host → whether it is the page's own; None: no header
ORIGINS = {
    "own": ("http://{}", True),
    "secure": ("https://{}", True),
    "none": (None, None),
    "null": ("null", False),
    "empty": ("", False),
    "elsewhere": ("http://evil.example", False),
    "other port": ("http://127.0.0.1:1", False),
    "path": ("http://{}/x", False),
    "other scheme": ("ftp://{}", False),
    "longer": ("http://{}.evil.example", False),
}
SHOWN = ("cookie", "address", "bearer", "nothing", "wrong cookie", "wrong address", "other port's cookie")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "WEBSOCKET")


def call(method, host, origin, shown, secret=SECRET, path="/x", query="", **more):
    """(what the app behind the door saw, status, headers); status None: the WebSocket was let in."""
    port = (hosts.split(host) or ("", None))[1] or (443 if more.get("scheme") == "https" else 80)
    headers = [("host", host)] if host else []
    headers += [("origin", origin)] if origin is not None else []
    cookies = {
        "cookie": f"a=b; fusescope-token-{port}={SECRET.cookie}",
        "wrong cookie": f"fusescope-token-{port}={TOKEN}",
        "other port's cookie": f"fusescope-token-{port + 1}={SECRET.cookie}",
    }
    headers += [("cookie", cookies[shown])] if shown in cookies else []
    headers += [("authorization", f"Bearer {TOKEN}")] if shown == "bearer" else []
    query += {"address": f"&token={TOKEN}", "wrong address": f"&token={TOKEN}x"}.get(shown, "")
    headers += [(k.replace("_", "-"), v) for k, v in more.items() if k != "scheme"]
    socket = method == "WEBSOCKET"
    scope = {
        "type": "websocket" if socket else "http",
        "method": method,
        "scheme": more.get("scheme", "http"),
        "path": path,
        "query_string": query.lstrip("&").encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers],
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 5),
    }
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append(scope["path"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    names = hosts.Names.of(("gpu.example", "*.lab.example", None, ""))
    asyncio.run(door.Door(app, secret, names)(scope, receive, send))
    if socket:
        return seen, 1008 if sent else None, {}
    return seen, sent[0]["status"], {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_request_is_let_in_by_the_rules_alone(method):
    reads = method in ("GET", "HEAD")
    for (host, served), (form, ours), shown in itertools.product(HOSTS.items(), ORIGINS.values(), SHOWN):
        origin = form.format(host) if form else form
        # An Origin of ours cannot be made of a Host that is none.
        allowed = served and (ours or (ours is None and reads))
        known = shown in ("cookie", "bearer")
        seen, status, headers = call(method, host, origin, shown)
        case = (method, host, origin, shown, status)
        assert bool(seen) == (allowed and known), case
        if method == "WEBSOCKET":
            assert (status is None) == (allowed and known), case
            continue
        redirected = allowed and reads and shown == "address"
        expected = 403 if not allowed else 200 if known else 303 if redirected else 401
        assert status == expected, case
        assert ("set-cookie" in headers) == redirected, case
        assert "frame-ancestors" in headers["content-security-policy"], case
        assert headers["x-frame-options"] == "SAMEORIGIN" and headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_the_cookie_is_for_this_port_and_no_script():
    _, _, headers = call("GET", "127.0.0.1:9000", None, "address", query="op=add&seq=64")
    name, _, rest = headers["set-cookie"].partition("=")
    assert name == "fusescope-token-9000" and rest.startswith(SECRET.cookie) and TOKEN not in rest
    assert {"httponly", "samesite=strict", "path=/"} <= {p.strip().lower() for p in rest.split(";")}
    assert "secure" not in rest.lower() and headers["location"] == "/x?op=add&seq=64"
    _, _, headers = call("GET", "gpu.example", None, "address", scheme="https")
    assert "; secure" in headers["set-cookie"].lower()


@pytest.mark.parametrize("form", ["{}; {}", "{1}; {0}", "{0};{1}"])
def test_a_server_with_a_prefix_is_found_beside_one_without(form):
    """Both behind one proxy: the browser sends the cookie of / too, under the same name."""
    own = f"fusescope-token-443={SECRET.cookie}"
    other = f"fusescope-token-443={Secret('another-token-of-16').cookie}"
    host, further = "gpu.example", {"scheme": "https"}
    assert call("GET", host, None, "nothing", cookie=form.format(own, other), **further)[1] == 200
    assert call("GET", host, None, "nothing", cookie=other, **further)[1] == 401


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example"])
def test_the_way_back_stays_on_this_machine(path):
    assert call("GET", "localhost:1", None, "address", path=path)[2]["location"].startswith("/evil.example")


def test_behind_tls_only_a_page_over_tls_is_ours():
    assert call("WEBSOCKET", "gpu.example", "http://gpu.example", "cookie", scheme="https")[1] == 1008
    assert call("WEBSOCKET", "gpu.example", "https://gpu.example", "cookie", scheme="https")[1] is None


@pytest.mark.parametrize(
    ("site", "mode", "dest", "in_"),
    [
        ("same-origin", "cors", "empty", True),
        ("none", "navigate", "document", True),
        ("same-site", "navigate", "document", True),  # a link on another local port
        ("cross-site", "navigate", "document", True),
        ("cross-site", "navigate", "iframe", False),
        ("same-site", "navigate", "iframe", False),
        ("same-site", "no-cors", "script", False),
        ("cross-site", "no-cors", "image", False),
        ("same-site", "websocket", "websocket", False),
    ],
)
def test_pages_of_other_sites_and_ports_get_nothing(site, mode, dest, in_):
    more = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": dest}
    assert bool(call("GET", "localhost:1", None, "cookie", **more)[0]) == in_
    if not in_:
        assert call("GET", "localhost:1", None, "cookie", **more)[1] == 403


def test_a_visitor_from_another_site_goes_around_once_before_the_login_page():
    """The browser keeps a Strict cookie back on the first request, and sends it on the second."""
    window = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document", "accept": "text/html"}
    _, status, _ = call("GET", "localhost:1", None, "nothing", sec_fetch_site="cross-site", **window)
    assert status == 200
    _, status, _ = call("GET", "localhost:1", None, "nothing", sec_fetch_site="same-origin", **window)
    assert status == 401


def test_without_a_token_host_and_origin_are_still_checked():
    open_ = Secret(None)
    assert call("GET", "localhost:1", None, "nothing", open_)[0]
    assert call("WEBSOCKET", "localhost:1", "http://localhost:1", "nothing", open_)[0]
    assert not call("WEBSOCKET", "localhost:1", "http://localhost:2", "nothing", open_)[0]
    assert not call("GET", "evil.example", None, "nothing", open_)[0]


def test_an_address_that_was_reached_may_be_named():
    """Bound to every address: Host is then one of the machine's."""
    names = hosts.Names.of((None,))
    assert names.serve("10.0.0.7:8501", "10.0.0.7") and names.serve("10.0.0.7", "::ffff:10.0.0.7")
    assert not names.serve("10.0.0.8", "10.0.0.7")
    assert hosts.Names.of(("*",)).serve("anything.example", "10.0.0.7")
