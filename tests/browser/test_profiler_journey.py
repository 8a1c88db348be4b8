"""The Profiler in a real browser: a stranger's trace uploaded, looked at in every way, and opened in Perfetto
without the outside."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

sys.path.append(str(Path(__file__).resolve().parents[1] / "profiling"))

from made_up import kernel, launch, op, trace, x

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
EVIL = ("<img src=x onerror=alert(1)>", "<a href='javascript:alert(2)'>x</a>", "<b>bold</b>%{x}")


def hostile(path: Path) -> Path:
    events = [x("user_annotation", "ProfilerStep#0", 0, 900)]
    for n, name in enumerate(EVIL):
        events += [op(name, 10 + 100 * n, 40, external=n + 1), launch(n + 1, 15 + 100 * n, external=n + 1)]
        events.append(kernel(n + 1, 60 + 100 * n, 50, name, external=n + 1, registers=64))
    return trace(path, events)


@pytest.fixture
def visitor(regular):
    """A page whose dialogs, errors and answers from elsewhere are kept: (page, list of them)."""
    page, strange = regular.new_page(), []
    page.on("dialog", lambda d: (strange.append(f"dialog {d.message}"), d.dismiss()))
    page.on("pageerror", lambda e: strange.append(str(e)))
    page.on(
        "response",
        lambda r: None if r.url.startswith(("http://127.0.0.1", "data:", "blob:")) else strange.append(r.url),
    )
    yield page, strange
    page.close()


@pytest.mark.long
def test_a_strangers_trace_is_imported_and_harmless(shared_server, visitor, tmp_path):
    page, strange = visitor
    page.goto(shared_server.with_token(f"{shared_server.address}/profiler?do=import"))
    page.get_by_text("Nothing in a file is executed").wait_for()
    page.set_input_files("input[type=file]", str(hostile(tmp_path / "theirs.json")))
    button = page.get_by_role("button", name="Import the upload", exact=True)
    expect(button).to_be_enabled()  # once the server has the file
    button.click()
    page.get_by_text("Longest kernels").wait_for()
    for view, shows in (
        ("Time breakdown", ".js-plotly-plot"),
        ("Timeline", ".js-plotly-plot"),
        ("Tables", ".st-key-table-profile-kernel_summary .fs-table"),
    ):
        page.get_by_text(view, exact=True).first.click()
        page.locator(shows).first.wait_for()
        page.wait_for_timeout(700)
        wide = page.locator(".js-plotly-plot").evaluate_all(
            "charts => charts.map(c => c.getBoundingClientRect().width)"
        )
        assert all(w == int(w) for w in wide), "plotly draws a chart twice that is a fraction of a pixel wide"
        assert (
            page.locator("img[src='x']").count() == 0 and page.locator("a[href^='javascript']").count() == 0
        ), view
    assert not list((shared_server.profiles / ".uploads").iterdir()), (
        "the upload is in its run, and nowhere else"
    )
    page.get_by_text("Timeline", exact=True).first.click()
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url("**span=**")
    zoomed = page.url
    page.wait_for_timeout(1500)
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    across = box["y"] + box["height"] / 3
    page.mouse.move(box["x"] + 0.4 * box["width"], across)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], across, steps=4)
    page.mouse.move(box["x"] + 0.6 * box["width"], across, steps=4)
    page.mouse.up()
    page.wait_for_url(lambda url: "span=" in url and url != zoomed)
    assert "run=" in page.url and "view=Time" in page.url
    page.get_by_text("Perfetto", exact=True).first.click()
    inner = page.frame_locator("iframe[src*='/perfetto/']")
    inner.get_by_text("theirs").or_(inner.locator("canvas")).first.wait_for()
    page.wait_for_timeout(1500)
    assert not strange, strange
