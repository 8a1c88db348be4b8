"""Schedulers and workers as the commands of ``fusescope cluster``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys

from fusescope.core import paths

WAIT_S = 120


@contextlib.contextmanager
def member(*words):
    """A command of ``cluster`` that runs until the block ends: (its process, its answer)."""
    command = [sys.executable, "-m", "fusescope", "cluster", *words, "--json"]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while not text.endswith("}\n") and (line := process.stdout.readline()):
            text += line
        yield process, json.loads(text)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            process.stdout.close()
