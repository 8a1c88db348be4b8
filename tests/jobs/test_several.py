"""A comparison in several fresh processes: each case's records as soon as all processes have measured it,
samples by process, and crashes, hangs and stops that cost what they should."""

import os
import signal

import forked_members
import pytest

from fusescope.core.errors import Cancelled
from fusescope.core.reporter import Collect
from fusescope.jobs import several
from fusescope.jobs.kinds import bench
from fusescope.jobs.process import members

pytestmark = pytest.mark.slow


class Listening(Collect):
    """Wants to stop when it has heard ``stop_at`` of the progress."""

    stop_at = None

    def progress(self, done, total, message, eta_s=None):
        super().progress(done, total, message, eta_s)
        self.cancelled = self.cancelled or bool(self.stop_at and self.stop_at in message)


def spec(*impls, **more):
    settings = {"budget_s": 0.1, "min_s": 0.01, "min_samples": 5, "cache": "warm", "processes": 3}
    return bench.validate(
        {"op": "add", "impls": ["eager", *impls], "cases": [{"n": 1000}], "baseline": "eager"}
        | settings
        | more
    )


@pytest.fixture
def function(tmp_path, monkeypatch):
    """Writes a file with one function; several processes see the folder in $SEEN."""
    monkeypatch.setenv("SEEN", str(tmp_path))

    def make(body):
        file = tmp_path / "mine.py"
        file.write_text(f"import os, sys, time\n\ndef mine(x, y):\n    {body}\n    return x + y\n")
        return f"{file}:mine"

    return make


@pytest.fixture
def forked(monkeypatch):
    """Members are forks of one process that has imported torch: 0.2 s of CPU each instead of 2.5."""
    monkeypatch.setattr(members, "start", forked_members.start)


@pytest.mark.long
def test_each_process_is_another_and_one_record_comes_of_them(function, tmp_path):
    mine = function(
        "print('torch._inductor' in sys.modules, file=open(os.environ['SEEN'] + f'/pid{os.getpid()}', 'w'))"
    )
    reporter = Listening()
    bench.run(spec(mine, processes=2, cases=[{"n": 100}]), reporter)
    assert [(r.impl, r.status) for r in reporter.records] == [("eager", "ok"), (mine, "ok")]
    assert {r.speedup.processes for r in reporter.records} == {2}
    seen = {file.name: file.read_text() for file in tmp_path.glob("pid*")}
    assert len(seen) == 2 and f"pid{os.getpid()}" not in seen
    assert set(seen.values()) == {"False\n"}, "what compiles nothing does not import a compiler (2.6 s)"
    assert [line[1] for line in reporter.raw].count(mine) == 2, "a line of samples for each process"
    assert reporter.facts["processes"] == 2
    assert any("process 2 of 2" in step[2] for step in reporter.steps)


@pytest.mark.usefixtures("forked")
def test_a_crash_costs_one_implementation(function):
    mine = function("os.abort()")
    reporter = Listening()
    bench.run(spec(mine, processes=2), reporter)
    found = {r.impl: r for r in reporter.records}
    assert found["eager"].status == "ok" and found["eager"].speedup.processes == 2
    assert found[mine].status == "crashed" and "signal 6" in found[mine].reason


@pytest.mark.usefixtures("forked")
def test_a_hang_is_stopped_at_its_deadline(function):
    mine = function("time.sleep(60)")
    reporter = Listening()
    bench.run(spec(mine, processes=2, case_deadline_s=1.0), reporter)
    assert {r.impl: r.status for r in reporter.records} == {"eager": "ok", mine: "timeout"}


TWO = [{"n": 1000}, {"n": 2000}]


@pytest.mark.usefixtures("forked")
def test_a_stop_keeps_finished_cases_and_what_whole_processes_found():
    reporter = Listening()
    reporter.stop_at = "case 2 of 2, process 3 of 3: sampling"
    with pytest.raises(Cancelled):
        bench.run(spec(cases=TWO), reporter)
    assert [(r.case["n"], r.speedup.processes) for r in reporter.records] == [(1000, 3), (2000, 2)]
    assert [(line[0], line[1]) for line in reporter.raw] == [
        (r.case_key, "eager") for r in reporter.records for _ in range(r.speedup.processes)
    ]
    assert any("case 2 has records of 2 of 3 processes" in line for line in reporter.lines)


@pytest.mark.usefixtures("forked")
def test_a_stop_in_the_first_process_of_a_case_keeps_nothing_of_it():
    reporter = Listening()
    reporter.stop_at = "process 1 of 3: sampling"
    with pytest.raises(Cancelled):
        bench.run(spec(), reporter)
    assert reporter.records == [] and reporter.raw == []


@pytest.mark.usefixtures("forked")
def test_cases_come_one_after_the_other_over_the_same_processes(function, tmp_path):
    mine = function("open(os.path.join(os.environ['SEEN'], f'pid{os.getpid()}'), 'a').close()")
    steps = []

    class Booking(Listening):
        def record(self, record):
            super().record(record)
            steps.append((record.case["n"], self.steps[-1][2]))

    reporter = Booking()
    bench.run(spec(mine, cases=TWO, processes=2), reporter)
    assert [r.status for r in reporter.records] == ["ok"] * 4
    assert all(said.startswith(f"case {n // 1000} of 2, process 2 of 2") for n, said in steps)
    assert len(list(tmp_path.glob("pid*"))) == 2, "each process is used for all cases"
    done = [step[0] / step[1] for step in reporter.steps]
    assert done == sorted(done) and done[-1] == 1


@pytest.mark.long
@pytest.mark.usefixtures("forked")
def test_what_has_a_record_is_not_measured_again():
    whole, again = Listening(), Listening()
    bench.run(spec(cases=TWO, processes=2), whole)
    again.records.append(whole.records[0])
    bench.run(spec("cpu", cases=TWO, processes=2), again)
    assert [(r.case["n"], r.impl) for r in again.records[1:]] == [
        (1000, "cpu"),
        (2000, "eager"),
        (2000, "cpu"),
    ]
    assert all(r.speedup.processes == 2 for r in again.records)
    assert (whole.records[0].case_key, "eager") not in {(line[0], line[1]) for line in again.raw}


@pytest.mark.usefixtures("forked")
def test_what_failed_in_one_process_is_not_tried_in_the_next(function, tmp_path):
    mine = function(
        "open(os.path.join(os.environ['SEEN'], f'pid{os.getpid()}'), 'w').close(); raise MemoryError"
    )
    reporter = Listening()
    bench.run(spec(mine, processes=2), reporter)
    assert [(r.impl, r.status) for r in reporter.records] == [("eager", "ok"), (mine, "oom")]
    assert len(list(tmp_path.glob("pid*"))) == 1


@pytest.mark.usefixtures("forked")
def test_a_process_that_dies_between_cases_is_started_again(monkeypatch):
    class Killing(Listening):
        def record(self, record):
            super().record(record)
            if len(self.records) == 1:
                os.kill(pids[0], signal.SIGKILL)

    pids, start = [], members.start

    def booked(kind, its):
        process = start(kind, its)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(members, "start", booked)
    reporter = Killing()
    bench.run(spec(cases=TWO, processes=2), reporter)
    assert [(r.case["n"], r.speedup.processes) for r in reporter.records] == [(1000, 2), (2000, 2)]
    assert len(pids) == 3


def test_what_is_left_goes_by_the_size_of_each_case(monkeypatch):
    """A case of 1 s and one of 20 s in two processes each, all twice as long as expected."""
    now = [0.0]
    monkeypatch.setattr(several.time, "monotonic", lambda: now[0])
    heard = []
    reporter = Listening()
    reporter.progress = lambda done, total, message, eta_s=None: heard.append(eta_s)
    team = several._Team("bench", spec(cases=TWO, processes=2), reporter, [[1.0, 1.0], [20.0, 20.0]])
    monkeypatch.setattr(several.Member, "measure", lambda member, *_: now.__setitem__(0, now[0] + 2.0))
    team.ask(team.members[0], 0, spec(processes=2), {})
    team.at = 0, 2.0  # the second process has begun
    team._progress(1, 0, 4, "starting", 2.0)
    assert now == [2.0] and heard == [pytest.approx(2.0 + 40.0 * (4.0 + 2.0) / (2.0 + 2.0))]


def test_what_no_process_can_measure_is_said_once():
    broken = spec() | {"impls": ["eager", "nothing.py:at_all"]}
    with pytest.raises(RuntimeError, match=r"process 1 of 3: .*nothing\.py"):
        several.run("bench", broken, Listening(), bench.facts)


def test_what_a_process_logs_names_it():
    reporter = Collect()
    member = object.__new__(members.Member)
    member.number, member.reporter, logged = 1, reporter, []
    reporter.log = logged.append
    member._log({"text": "measuring the ceilings again"})
    assert logged == ["process 2: measuring the ceilings again"]


def test_all_processes_together_wait_as_long_as_was_given():
    """Each of them waited so long for each case: 6 times the seconds."""
    whole = spec(cases=TWO, processes=3, wait_idle_s=60)
    assert [several._Case(whole, n, Collect()).spec["wait_idle_s"] for n in (0, 1)] == [10, 10]
