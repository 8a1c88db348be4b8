"""How fast pages are drawn: text and charts in a cold browser, and a redraw after a change.

    .venv/bin/python scripts/first_paint.py [--pages app,kernels] [--visits 3] [--json]

Starts a server of its own on a free port with the recorded runs, waits until it has loaded what it needs,
and opens each page in a new browser context (no cache, no cookie). Milliseconds since the navigation began,
median of the visits: text (the title stands), charts (the last chart that is in view has its drawing), drawn
(the server has finished and nothing is stale); redraw: from a click on another button of the page's first row
of them until the server has finished. The limits are 1,000, 2,000 and 300. A page without a chart, or without
such a row, has no figure. The load average says how quiet the machine was: above 1.5 figures say little.

Charts are later here than for a visitor: Playwright enables the browser's inspector, with which V8 collects
source positions of plotly.js while it starts. Of 1,700 ms of CPU for that start 850 were these; in a browser
without an inspector it took 690 to 860 (both before the file was compiled while it loads, Chromium 156).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("app", "attention", "kernels", "masks", "models", "profiler", "fusion", "runs", "build", "help")
LIMITS = {"text": 1000, "charts": 2000, "redraw": 300}
_TOKEN = "token-of-first-paint"
_WATCH = """
(() => {
  const seen = window.__seen = {};
  const look = () => {
    const now = performance.now(), main = document.querySelector('.stMain');
    if (!seen.text && main?.querySelector('h1')?.textContent) seen.text = now;
    const charts = [...document.querySelectorAll('.stPlotlyChart, [data-testid="stPlotlyChart"]')].filter(
      c => c.getBoundingClientRect().top < innerHeight);
    if (charts.length && charts.every(c => c.querySelector('.main-svg'))) {
      if (seen.count !== charts.length) { seen.charts = now; seen.count = charts.length; }
    }
    const state = document.querySelector('.stApp')?.dataset.testScriptState;
    const done = state === 'notRunning' && seen.text && !document.querySelector('[data-stale=true]');
    if (!done) seen.drawn = 0; else if (!seen.drawn) seen.drawn = now;
    if (state === 'running') seen.ran = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
_SETTLED = """() => window.__seen?.drawn && performance.now() - window.__seen.drawn > 1500
    && !document.querySelector('[data-testid="stSkeleton"]')"""


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
    from playwright.sync_api import sync_playwright

    browser = next((p for n in ("chromium", "google-chrome") if (p := shutil.which(n))), None)
    if browser is None:
        raise SystemExit("Chromium is not installed (Debian: apt-get install chromium)")
    found: dict = {"pages": {}, "limits": LIMITS}
    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for page in pages:
            _visit(chromium, address, page)  # the server's own caches, as for every visitor but the first
            times = [_visit(chromium, address, page) for _ in range(visits)]
            found["pages"][page] = {key: _median([t[key] for t in times]) for key in times[0]}
        chromium.close()
    return found


def _visit(chromium, address: str, page: str) -> dict[str, float | None]:
    """One visit by a browser that has never been here."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(240_000)
    tab.add_init_script(_WATCH)
    path = "/" if page == "app" else f"/{page}"
    tab.goto(f"{address}{path}?token={_TOKEN}", wait_until="commit")
    tab.wait_for_function(_SETTLED)
    seen = tab.evaluate("() => window.__seen")
    found = {key: seen.get(key) for key in ("text", "charts", "drawn")} | {"redraw": _redraw(tab)}
    context.close()
    return found


def _redraw(tab) -> float | None:
    """From a click on another button of the first row of them until the server has finished."""
    button = tab.locator('.stMain button[data-variant="segmented_control"][aria-checked="false"]').first
    if button.count() == 0:
        return None
    began = tab.evaluate(
        "() => { window.__seen.ran = 0; window.__seen.drawn = 0; return performance.now(); }"
    )
    button.click()
    tab.wait_for_function("() => window.__seen.ran && window.__seen.drawn > window.__seen.ran")
    tab.wait_for_function(_SETTLED)
    return tab.evaluate("() => window.__seen.drawn") - began


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v]
    return statistics.median(known) if known else None


if __name__ == "__main__":
    main()
