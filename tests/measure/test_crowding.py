"""How many times as long one more thread is expected to take, on CPUs whose load is simulated and real."""

import os
import subprocess
import sys
import time
from collections import deque

import pytest

from fusescope.core.machine import load


class Machine:
    """Two CPUs: seconds passed, seconds busy, seconds in which a thread waited; the load average."""

    def __init__(self):
        self.now, self.busy, self.pressed, self.average = 1000.0, 0.0, 0.0, 0.0

    def goes_on(self, seconds, busy, pressed=0.0, average=None):
        """``busy`` CPUs, and something waiting for the share ``pressed`` of the time."""
        self.now += seconds
        self.busy += busy * seconds
        self.pressed += pressed * seconds
        self.average = self.average if average is None else average


@pytest.fixture
def machine(monkeypatch, tmp_path):
    made = Machine()
    monkeypatch.setattr(load, "_recent", deque(maxlen=64))
    monkeypatch.setattr(load, "_busy_and_pressed", lambda cpus: (made.now, made.busy, made.pressed))
    monkeypatch.setattr(load.os, "getloadavg", lambda: (made.average, 0.0, 0.0))
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 1})
    return made


AVERAGES = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.5), (6.0, 3.5), (100.0, 5.0)]


@pytest.mark.parametrize("average, factor", AVERAGES)
def test_without_an_earlier_call_the_load_average_says_it(machine, average, factor):
    machine.average = average
    assert load.crowding() == factor
    machine.goes_on(0.1, busy=2)
    assert load.crowding() == factor, "a moment says nothing"


@pytest.mark.parametrize("average, factor", AVERAGES)
def test_without_pressure_files_the_load_average_says_it(machine, monkeypatch, tmp_path, average, factor):
    monkeypatch.undo()
    monkeypatch.setattr(load, "_recent", deque())
    monkeypatch.setattr(load, "_PRESSURE", tmp_path / "none")
    monkeypatch.setattr(load.os, "getloadavg", lambda: (average, 0.0, 0.0))
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 1})
    for _ in range(2):
        assert load.crowding() == factor


@pytest.mark.parametrize(
    ("busy", "pressed", "average", "factor"),
    [
        (0.0, 0.0, 2.8, 1.0),  # a job of ours has just ended: it is still in the load average
        (1.0, 0.0, 2.8, 1.0),  # one CPU is free
        (2.0, 0.0, 2.8, 1.5),  # two threads on two CPUs: a third takes half as long again
        (2.0, 0.0, 0.3, 1.5),  # the same that have just begun
        (2.0, 0.2, 9.0, 1.625),  # seldom does one wait
        (2.0, 1.0, 6.0, 3.5),  # one always waits: how many, the load average says
        (2.0, 1.0, 99.0, 5.0),
        (2.0, 1.0, 1.0, 1.5),
    ],
)
def test_what_ran_and_waited_since_the_last_call_says_it(machine, busy, pressed, average, factor):
    load.crowding()
    machine.goes_on(3.0, busy, pressed, average)
    assert load.crowding() == pytest.approx(factor)


def test_it_looks_back_ten_seconds(machine):
    load.crowding()
    machine.goes_on(60.0, busy=2, pressed=1.0, average=6.0)
    assert load.crowding() == 3.5, "of the load average: the last call is too long ago"
    for _ in range(4):
        machine.goes_on(3.0, busy=0)
        now = load.crowding()
    assert now == 1.0


@pytest.mark.skipif(load._busy_and_pressed({0}) is None, reason="the system does not say who waits")
def test_processes_that_fill_the_cpus_are_seen_within_seconds(monkeypatch):
    monkeypatch.setattr(load, "_recent", deque(maxlen=64))
    cpus = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", "while True: pass"]
    filling = [subprocess.Popen(command) for _ in range(2 * cpus)]
    try:
        time.sleep(0.5)
        load.crowding()
        time.sleep(2.0)
        assert load.crowding() > (0.9 * cpus + 1) / cpus
    finally:
        for process in filling:
            process.kill()
            process.wait()
