"""A server of its own on a free port, and real Chromium in front of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--process-per-site",  # of a context: see ``regular``
    "--disable-features=SpareRendererForSitePerProcess",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# milliseconds: what a page that is merely slow, on a busy machine, is given to get where a journey expects it
WAIT = 90_000
TOKEN = "token-of-the-browser-journeys"


def pytest_collection_modifyitems(items):
    """A journey that ran out of patience gets a second go, and the report says RERUN; what it finds wrong
    fails at once."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=[r"Timeout \d+ms exceeded"]))


class Server:
    """``streamlit run app.py`` with folders of its own and ``further`` environment; ``address`` is where it
    answers."""

    def __init__(self, home: Path, **further: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.profiles = home / "profiles"
        self.profiles.mkdir(parents=True, exist_ok=True)
        self.log = home / "server.log"
        # Of jobs: what they measure is not what a journey is about, and every thread waits for a core here.
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        env |= {"FUSESCOPE_PROFILES": str(self.profiles), "FUSESCOPE_TOKEN": TOKEN} | further
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while True:
            try:
                self.get("/_stcore/health", timeout=2).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the server did not answer: {self.log.read_text()[-2000:]}") from None
                time.sleep(0.1)

    @staticmethod
    def with_token(address: str) -> str:
        """The address as the server prints it; a browser's first visit needs it."""
        return f"{address}{'&' if '?' in address else '?'}token={TOKEN}"

    def get(self, path: str, timeout: float = 20, **headers: str):
        """The open answer to a program that knows the token."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | headers
        return urllib.request.urlopen(
            urllib.request.Request(self.address + path, headers=headers), timeout=timeout
        )

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def chromium():
    """A running browser; without one the journeys are skipped, and fail where CI=true."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = "NO BROWSER JOURNEY RAN: Chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT)
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """One server, and one warm parent of jobs, for all journeys that change nothing for the next. Its kernels
    are a copy, ``cuda/`` beside its profiles, that a journey may edit and put back; the build cache is the
    common one, so that only an edit is compiled."""
    home = tmp_path_factory.mktemp("journey")
    shutil.copytree(ROOT / "cuda", home / "cuda")
    running = Server(home, FUSESCOPE_CUDA=str(home / "cuda"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def recorded_server(tmp_path_factory):
    """A server that has the recorded runs and no other, for journeys that only look."""
    home = tmp_path_factory.mktemp("recorded")
    (home / "profiles").mkdir()
    (home / "profiles" / "recorded").symlink_to(ROOT / "profiles" / "recorded")
    running = Server(home)
    yield running
    running.stop()


def _forbidden(message) -> bool:
    """Whether our policy stopped something; the Perfetto UI's calls to its makers are meant to be stopped."""
    return "Content Security Policy" in message.text and "/perfetto/" not in message.location["url"]


@pytest.fixture(scope="session")
def regular(chromium, recorded_server):
    """A browser context that has the app's JavaScript in its cache: compiling it takes a context of its own
    some 4 CPU seconds for each server. A tab without the app stays open, and with it the process of all tabs
    of this machine: one of its own takes a tab a CPU second or two."""
    context = chromium.new_context(viewport={"width": 1440, "height": 1400}, accept_downloads=True)
    context.set_default_timeout(WAIT)
    context.new_page().goto(f"{recorded_server.address}/_stcore/health")
    yield context
    context.close()


@pytest.fixture
def page(regular):
    """A new tab of a regular visitor, who opens addresses with the token. Whatever the page asks of another
    machine, throws, or tries against our Content-Security-Policy, fails the test at its end."""
    page = regular.new_page()
    strange: list[str] = []
    page.on(
        "request",
        lambda r: (
            None
            if r.url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:"))
            else strange.append(r.url)
        ),
    )
    page.on("pageerror", lambda e: strange.append(str(e)))
    page.on("console", lambda m: strange.append(m.text) if _forbidden(m) else None)
    goto = page.goto
    page.goto = lambda address, **further: goto(Server.with_token(address), **further)
    yield page
    page.close()
    assert not strange, strange
