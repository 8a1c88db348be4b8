"""What a browser does with the door: logging in, links from elsewhere, pages that try to get around it."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WAIT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def elsewhere(tmp_path):
    """A server of somebody else's pages on another port; write(html) gives the path of a page."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def write(html: str) -> str:
        (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{html}")
        return f":{server.server_address[1]}/page.html"

    yield write
    server.shutdown()


@pytest.fixture
def newcomer(chromium):
    """Somebody who was never here: no cookies."""
    context = chromium.new_context()
    context.set_default_timeout(WAIT)
    yield context.new_page()
    context.close()


@pytest.fixture
def visitor(regular):
    """A tab of somebody who was here before."""
    page = regular.new_page()
    yield page
    page.close()


def heading(page, name):
    page.get_by_role("heading", name=name, exact=True).wait_for()


def test_who_pastes_the_address_into_the_login_page_is_in_and_stays_in(shared_server, newcomer):
    newcomer.goto(f"{shared_server.address}/kernels?op=add")
    expect(newcomer.get_by_text("This app needs its token.")).to_be_visible()
    newcomer.get_by_label("token").fill("wrong")
    newcomer.get_by_role("button", name="Open").click()
    expect(newcomer.get_by_role("alert")).to_contain_text("not the token")
    newcomer.get_by_label("token").fill(shared_server.with_token(shared_server.address + "/"))
    newcomer.get_by_role("button", name="Open").click()
    heading(newcomer, "Kernels")
    assert "token" not in newcomer.url and "op=add" in newcomer.url
    newcomer.goto(f"{shared_server.address}/runs")
    heading(newcomer, "Runs")


@pytest.mark.long
def test_a_link_of_another_site_opens_for_who_was_here_before(shared_server, visitor, elsewhere):
    visitor.goto(shared_server.with_token(shared_server.address + "/"))
    heading(visitor, "FuseScope")
    path = elsewhere(f'<a href="{shared_server.address}/kernels?op=add">link</a>')
    visitor.goto(f"http://localhost{path}")
    visitor.get_by_text("link").click()
    heading(visitor, "Kernels")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_pages_elsewhere_neither_frame_nor_call_nor_read_the_app(shared_server, visitor, elsewhere, name):
    visitor.goto(shared_server.with_token(shared_server.address + "/"))
    heading(visitor, "FuseScope")
    at = shared_server.address
    path = elsewhere(
        f"""<iframe src="{at}/kernels?op=add"></iframe><script>
        const tried = {{}};
        const socket = new WebSocket("{at.replace("http", "ws")}/_stcore/stream", ["streamlit"]);
        socket.onopen = () => tried.socket = "open";
        socket.onerror = () => tried.socket = "refused";
        fetch("{at}/_stcore/host-config", {{credentials: "include"}})
          .then(r => tried.fetch = "read", () => tried.fetch = "refused");
        const image = new Image();
        image.onload = () => tried.image = "read"; image.onerror = () => tried.image = "refused";
        image.src = "{at}/favicon.png";
        </script>"""
    )
    visitor.goto(f"http://{name}{path}")
    visitor.wait_for_function("tried.socket && tried.fetch && tried.image")
    assert visitor.evaluate("tried") == {"socket": "refused", "fetch": "refused", "image": "refused"}
    frame = visitor.frames[1]
    assert frame.url.startswith("chrome-error:") or "FuseScope" not in frame.content()
