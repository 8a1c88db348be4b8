"""Ctrl-C at a random moment of a command that starts a job: a sentence with the run's id and what became of
it, no traceback, no process left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fusescope.core import paths
from fusescope.store import folder
from tests.faults import left
from tests.faults.case import hold

_LAYER = "--batch 1 --seq 16 --heads 2 --head-dim 32 --dtype float32 --compiler none --device cpu"
_UP = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
from fusescope.__main__ import main
os.close(int(sys.argv.pop(1)))
sys.exit(main())
"""  # before it Python itself starts, which no program can make silent
VERBS = {
    "bench": "add --impl eager --case n=64 --device cpu --budget 0.3",
    "model": "bert-small --impl eager --case seq=4,layers=1 --device cpu --budget 0.1 --no-parts",
    "traverse": f"32768 32776 --limit 4 --no-segments --budget 0.01 {_LAYER}",
    "search": f"--range 32768 33300 --strategy random --evaluations 4 {_LAYER}",
    "import": "{trace} --no-keep",
}
"""Verb → its words; {trace}: a Chrome trace."""


def start(*words: str, program: Sequence[str] = ("-m", "fusescope"), **options) -> subprocess.Popen:
    """A command in a process of its own."""
    env = os.environ | {"PYTHONPATH": paths.python_path(), "FUSESCOPE_CANCEL_GRACE_S": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, *program, *words], env=env, text=True, **pipes)


def interrupted(verb: str, seed: int, profiles: Path, trace: Path, longest_s: float = 3.0) -> None:
    """Start a verb, press Ctrl-C at a moment drawn by the seed, once or some times, and look at what is left
    in ``profiles``, which holds no run before."""
    rng = random.Random(seed)
    up, begins = os.pipe()
    words = [str(begins), verb, *VERBS[verb].format(trace=trace).split()]
    process = start(*words, program=("-c", _UP), start_new_session=True, pass_fds=[begins])
    os.close(begins)
    with open(up) as pipe:
        pipe.read()
    time.sleep(rng.uniform(0, longest_s))
    pressed = rng.choice((1, 1, 2, 3))
    for _ in range(pressed):
        try:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of its group
        except ProcessLookupError:
            break
        time.sleep(rng.uniform(0, 0.5))
    _, err = process.communicate(timeout=200)
    what = f"{verb}, {pressed} times Ctrl-C, seed {seed}: {err}"
    hold("Traceback" not in err and "Exception ignored" not in err, "raw", what)
    made = [p for p in profiles.iterdir() if re.match(r"\d{8}-", p.name)]
    if process.returncode and made:
        hold(made[0].name in err, "words", what)
    for path in made:
        run = folder.read(path)
        if run.live:
            hold("goes on in the background" in err, "words", what)
            end = time.monotonic() + 120
            while folder.read(path).live and time.monotonic() < end:
                time.sleep(0.05)
        run = folder.read(path)
        fine = run.status == "cancelled" or left.finished(run)
        hold(fine, "state", f"{what} {run.status}, {run.reason}")
    hold(not [p for p in profiles.iterdir() if p.name.startswith(".new-")], "state", what)
