"""Runs one of the emulated_… modules beside it: each in a process of its own, because its library defines an
operator a second time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from fusescope.core import paths


def results(module: str, **environment: str) -> list[dict]:
    """What the module printed, a JSON line a case; an assertion fails where it did not end well."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.attention.{module}"],
        cwd=paths.ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
