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

pytestmark = pytest.mark.slow

BENCH = ["bench", "add", "--impl", "eager", "--case", "n=64", "--device", "cpu", "--budget", "0.3"]
STREAMS = [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full", "| true"]
VARIABLES = ["FUSESCOPE_PROFILES", "FUSESCOPE_RUNTIME", "FUSESCOPE_BUILD", "XDG_RUNTIME_DIR"]
SEEDS = [random.randrange(2**32) for _ in range(int(os.environ.get("FUSESCOPE_INTERRUPTS", 4)))]


def start(*words, **options):
    env = os.environ | {"PYTHONPATH": paths.python_path(), "FUSESCOPE_CANCEL_GRACE_S": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-m", "fusescope", *words], env=env, text=True, **pipes)


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_a_command_that_is_interrupted_says_what_became_of_its_run(profiles, number):
    seed = SEEDS[number]
    rng = random.Random(seed)
    process = start(*BENCH, start_new_session=True)
    time.sleep(0.06 + rng.uniform(0, 3.0))  # not before Python itself is up
    for _ in range(rng.choice((1, 1, 2, 3))):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of its group
        time.sleep(rng.uniform(0, 0.5))
    _, err = process.communicate(timeout=90)
    assert "Traceback" not in err and "Exception ignored" not in err, f"seed {seed}: {err}"
    made = [p for p in profiles.iterdir() if re.match(r"\d{8}-", p.name)]
    if process.returncode and made:
        assert made[0].name in err, f"seed {seed}: {err}"
    for path in made:
        run = folder.read(path)
        if run.live:
            assert "goes on in the background" in err, f"seed {seed}: {err}"
            end = time.monotonic() + 60
            while folder.read(path).live and time.monotonic() < end:
                time.sleep(0.05)
        assert folder.read(path).status in ("done", "cancelled"), f"seed {seed}: {folder.read(path)}"
    assert not [p for p in profiles.iterdir() if p.name.startswith(".new-")], f"seed {seed}"


def test_a_command_that_starts_nothing_ends_at_once(profiles):
    process = start("mask", "bigbird", "--seq", "60000")
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) in ((1, "interrupted\n"), (0, "")), err


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
