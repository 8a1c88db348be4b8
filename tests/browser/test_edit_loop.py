"""A kernel is edited while the page is open: the page says so, and one click gives new against old."""

import re
import time

import pytest
from playwright.sync_api import expect
from settling import settled

from fusescope.store import folder

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
LONG = 180_000  # milliseconds a compile or a job may take on a slow machine before the journey gives up


@pytest.fixture
def source(shared_server):
    """A kernel of the server's own copy, put back at the end."""
    file = shared_server.profiles.parent / "cuda" / "add" / "cpu.cpp"
    text = file.read_text()
    yield file
    file.write_text(text)


def runs(server) -> set[str]:
    """Names of the finished folders of comparisons; a folder that is being made has a hidden name still."""
    return {path.name for path in server.profiles.glob("[!.]*-bench-*")}


def finished(server, before: set[str]) -> str:
    """The run that was started since, once it is done. The page tells neither: it shows an older run until
    the new one is there, and no job until it has begun; an edit then would be what is measured."""
    end = time.monotonic() + LONG / 1000
    while time.monotonic() < end:
        for name in runs(server) - before:
            if folder.read(server.profiles / name).status == "done":
                return name
        time.sleep(0.2)
    raise AssertionError(f"no run is done: {runs(server) - before}")


@pytest.mark.long
def test_an_edit_is_seen_rebuilt_and_compared_by_one_click(shared_server, source, page):
    page.goto(shared_server.address + "/kernels?op=add&impl=cpu,eager&n=65536&cache=warm&within=5")
    settled(page)
    before = runs(shared_server)
    page.locator(".st-key-kernels-run button").click()
    first = finished(shared_server, before)
    expect(page).to_have_url(re.compile(f"run={first}"))
    expect(page.get_by_text("changed on disk")).to_have_count(0)

    text = source.read_text()
    assert "n > 16384" in text
    source.write_text(text.replace("n > 16384", "n > 32768"))
    page.get_by_text("changed on disk since this run").wait_for()
    page.get_by_role("button", name="Rebuild and re-run").click()

    page.get_by_text("cpu: after vs before the edit").first.wait_for(timeout=LONG)
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    expect(page).to_have_url(re.compile(f"before={first}"))
    expect(page).to_have_url(re.compile(rf"\brun=(?!{first})"))
    expect(page.get_by_text("changed on disk")).to_have_count(0)
    expect(page.get_by_test_id("stException")).to_have_count(0)
