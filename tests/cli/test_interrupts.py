"""Ctrl-C at a random moment of a command, and standard streams that are closed, full or left: a sentence with
the run's id and what became of it, no traceback, no process left behind."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from fusescope.core import paths
from fusescope.store import folder, library
from tests.faults import interrupt, jobs

pytestmark = pytest.mark.slow

_OPTIONS = "--impl eager --case n=64 --device cpu --cache warm --budget 0.02"
BENCH = ["bench", "add", *_OPTIONS.split()]
STREAMS = [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "| true"]
VARIABLES = ["FUSESCOPE_PROFILES", "FUSESCOPE_RUNTIME", "FUSESCOPE_BUILD", "XDG_RUNTIME_DIR"]
SEEDS = [random.randrange(2**32) for _ in range(int(os.environ.get("FUSESCOPE_INTERRUPTS", 5)))]


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_a_command_that_is_interrupted_says_what_became_of_its_run(profiles, tmp_path, number):
    """One verb after the other; tests/faults/classes/interrupts.py has more."""
    jobs.inputs(tmp_path)
    verb = list(interrupt.VERBS)[number % len(interrupt.VERBS)]
    interrupt.interrupted(verb, SEEDS[number], profiles, tmp_path / "trace.json", 2.0)


def test_a_command_that_starts_nothing_ends_at_once(profiles):
    process = interrupt.start("mask", "bigbird", "--seq", "60000")
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) in ((1, "interrupted\n"), (0, "")), err


@pytest.mark.long
def test_a_command_that_is_terminated_says_that_its_run_goes_on(profiles, tmp_path):
    (tmp_path / "slow.py").write_text("import time\n\n\ndef f(x, y):\n    time.sleep(600)\n")
    options = f"--impl eager,{tmp_path}/slow.py:f --case n=64 --device cpu"
    process = interrupt.start("bench", "add", *options.split())
    for _ in range(600):
        runs = [p for p in profiles.iterdir() if re.match(r"\d{8}-", p.name)] if profiles.exists() else []
        if runs and "checking" in folder.read(runs[0]).progress.message:
            break
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1].splitlines()
    assert process.returncode == -signal.SIGTERM
    (path,) = runs
    assert folder.read(path).status == "running"
    goes_on = f"terminated; {path.name} goes on in the background"
    assert said[-1] == f"{goes_on}; fusescope runs cancel {path.name} stops it", said
    command = [sys.executable, "-m", "fusescope", "runs", "cancel", path.name]
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)
    for _ in range(300):
        if folder.read(path).status == "cancelled":
            break
        time.sleep(0.1)
    assert folder.read(path).status == "cancelled"


@pytest.mark.sample(2, "| true")
@pytest.mark.parametrize("closed", STREAMS)
def test_streams_that_nobody_reads_end_no_command(profiles, closed):
    command = f"{sys.executable} -m fusescope {' '.join(BENCH)} --json {closed}"
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=90)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    assert done.returncode == (1 if closed == ">/dev/full" else 0), done
    (path,) = [p for p in profiles.iterdir() if re.match(r"\d{8}-", p.name)]
    assert library.find(path.name) == path and folder.read(path).status == "done"
    if closed.startswith("2"):
        assert done.stdout.startswith("{")


@pytest.mark.sample(1)
@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_set_to_nothing_counts_as_not_set(variable, tmp_path):
    env = os.environ | {"PYTHONPATH": paths.python_path(), variable: ""}
    command = [sys.executable, "-m", "fusescope", "runs", "list", "--limit", "1"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_fault_is_one_sentence_that_names_its_traceback(call, monkeypatch, tmp_path):
    from fusescope.cli.verbs import translate

    def broken(*_):
        raise KeyError("wheel\x1b[2J")

    monkeypatch.setattr(translate, "run", broken)
    got = call("translate", "6826")
    assert got.code == 1 and got.err.count("\n") == 1 and "\x1b" not in got.err, got
    file = re.search(r"its traceback is in (.*)\)$", got.err.strip())[1]
    text = open(file).read()
    assert text.startswith("fusescope translate 6826") and "Traceback" in text
