"""How fast pages are drawn: text and charts in a cold browser, and a redraw after a change.

    .venv/bin/python scripts/first_paint.py [--pages app,kernels] [--visits 3] [--json]

Starts a server of its own on a free port with the recorded runs, waits until it has loaded what it needs,
and opens each page in a new browser context (no cache, no cookie). Milliseconds since the navigation began,
median of the visits: text (the title stands), charts (the last chart that is in view has its drawing), drawn
(the server has finished and nothing is stale); redraw: from a click on another button of the page's first row
of them until the server has finished. The limits are 1,000, 2,000 and 300. A page without a chart, or without
such a row, has no figure. The load average says how quiet the machine was: above 1.5 figures say little.

The browser is driven by its own protocol, not by Playwright, which enables V8's inspector: starting plotly.js
then collects source positions and takes 1,700 ms of CPU, without an inspector, as for a visitor, 430 to 860.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from websockets.sync.client import ClientConnection, connect

ROOT = Path(os.environ.get("FP_ROOT") or Path(__file__).resolve().parents[1])
PAGES = (
    "app",
    "attention",
    "kernels",
    "masks",
    "models",
    "scaling",
    "profiler",
    "fusion",
    "runs",
    "build",
    "help",
)
LIMITS = {"text": 1000, "charts": 2000, "redraw": 300}
_TOKEN = "token-of-first-paint"
_WATCH = """
(() => {
  const seen = window.__seen = {};
  const look = () => {
    const now = performance.now(), main = document.querySelector('.stMain');
    if (!seen.text && main?.querySelector('h1')?.textContent) seen.text = now;
    const charts = seen.again ? [] : [...document.querySelectorAll('[data-testid="stPlotlyChart"]')].filter(
      c => c.getBoundingClientRect().top < innerHeight);
    if (charts.length && charts.every(c => c.querySelector('.main-svg'))) {
      if (seen.count !== charts.length) { seen.charts = now; seen.count = charts.length; }
    }
    const state = document.querySelector('.stApp')?.dataset.testScriptState;
    const done = state === 'notRunning' && seen.text && !document.querySelector('[data-stale=true]');
    if (state === 'running') seen.ran = now;
    if (done && seen.ran && !seen.drawn) seen.drawn = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
_SETTLED = """window.__seen?.drawn && performance.now() - window.__seen.drawn > 1500
    && !document.querySelector('[data-testid="stSkeleton"]')"""
_BUTTON = """(() => {
  const other = document.querySelector(
    '.stMain button[data-variant="segmented_control"][aria-checked="false"]');
  if (!other) return null;
  other.scrollIntoView({block: 'center'});
  const box = other.getBoundingClientRect();
  return {x: box.x + box.width / 2, y: box.y + box.height / 2};
})()"""
_AGAIN = """(() => {
  Object.assign(window.__seen, {again: true, ran: 0, drawn: 0});
  return performance.now();
})()"""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--pages", default=",".join(PAGES))
    words.add_argument("--visits", type=int, default=3)
    words.add_argument("--json", action="store_true")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as home:
        server, address = _serve(Path(home))
        try:
            found = _measured(address, given.pages.split(","), given.visits)
        finally:
            server.terminate()
            server.wait(20)
    found["load average"] = os.getloadavg()[0]
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'page':<10} {'text':>7} {'charts':>7} {'drawn':>7} {'redraw':>7}   ms")
    for page, times in found["pages"].items():
        cells = (times[key] for key in ("text", "charts", "drawn", "redraw"))
        print(f"{page:<10} " + " ".join(f"{'n/a' if c is None else round(c):>7}" for c in cells))
    print(f"load average {found['load average']:.1f}")


def _serve(home: Path) -> tuple[subprocess.Popen, str]:
    """(the server's process, its address), once it has answered and loaded."""
    (home / "profiles").mkdir()
    (home / "profiles" / "recorded").symlink_to(ROOT / "profiles" / "recorded")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"FUSESCOPE_PROFILES": str(home / "profiles"), "FUSESCOPE_TOKEN": _TOKEN}
    env["FUSESCOPE_RUNTIME"] = str(home / "runtime")
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    log = open(home / "server.log", "wb")
    server = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(
        f"{address}/_stcore/health", headers={"Authorization": f"Bearer {_TOKEN}"}
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(request, timeout=5).read()
            time.sleep(15)  # its imports go on in a thread
            return server, address
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server did not answer: {(home / 'server.log').read_text()[-2000:]}")


def _measured(address: str, pages: list[str], visits: int) -> dict:
    found: dict = {"pages": {}, "limits": LIMITS}
    for page in pages:
        _visit(address, page)  # the server's own caches, as for every visitor but the first
        times = [_visit(address, page) for _ in range(visits)]
        found["pages"][page] = {key: _median([t[key] for t in times]) for key in times[0]}
    return found


def _visit(address: str, page: str) -> dict[str, float | None]:
    """One visit by a browser that has never been anywhere."""
    with _browser() as tab:
        path = "/" if page == "app" else f"/{page}"
        tab.call("Page.navigate", url=f"{address}{path}?token={_TOKEN}")
        tab.wait(_SETTLED)
        seen = tab.value("window.__seen")
        return {key: seen.get(key) for key in ("text", "charts", "drawn")} | {"redraw": _redraw(tab)}


def _redraw(tab: Tab) -> float | None:
    """From a click on another button of the first row of them until the server has finished."""
    at = tab.value(_BUTTON)
    if at is None:
        return None
    began = tab.value(_AGAIN)
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
    tab.wait(_SETTLED)
    return tab.value("window.__seen.drawn") - began


@contextlib.contextmanager
def _browser() -> Iterator[Tab]:
    """An empty tab of a new Chromium, once that has started and rests."""
    binary = next((p for n in ("chromium", "google-chrome") if (p := shutil.which(n))), None)
    if binary is None:
        raise SystemExit("Chromium is not installed (Debian: apt-get install chromium)")
    options = ("headless=new", "no-sandbox", "disable-gpu", "remote-debugging-port=0", "no-first-run")
    options += ("disable-extensions", "disable-background-networking", "window-size=1440,987")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        log = Path(home) / "log"
        with open(log, "wb") as out:
            command = [binary, *(f"--{o}" for o in options), f"--user-data-dir={home}/user", "about:blank"]
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            end, found = time.monotonic() + 60, None
            while found is None and process.poll() is None and time.monotonic() < end:
                time.sleep(0.2)
                found = re.search(r"listening on (ws://\S+)", log.read_text(errors="replace"))
            if found is None:
                raise SystemExit(f"Chromium did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(2)
            with connect(found[1], max_size=None) as socket_:
                yield Tab(socket_)
        finally:
            process.terminate()
            process.wait(20)


class Tab:
    """A tab in which ``_WATCH`` looks on; the inspector stays off: only its Page domain is enabled."""

    def __init__(self, browser: ClientConnection):
        self._browser, self._number, self._session = browser, 0, {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self.call("Page.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)

    def call(self, method: str, **params) -> dict:
        self._number += 1
        self._browser.send(
            json.dumps({"id": self._number, "method": method, "params": params} | self._session)
        )
        while (got := json.loads(self._browser.recv(timeout=240))).get("id") != self._number:
            pass
        if "error" in got:
            raise SystemExit(f"{method}: {got['error']}")
        return got["result"]

    def value(self, expression: str):
        """Of JavaScript; None while there is none."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return got["result"].get("value")

    def wait(self, condition: str) -> None:
        end = time.monotonic() + 240
        while not self.value(condition):
            if time.monotonic() > end:
                raise SystemExit("a page was not drawn within 240 s")
            time.sleep(0.5)  # asking costs the page's own thread


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v]
    return statistics.median(known) if known else None


if __name__ == "__main__":
    main()
