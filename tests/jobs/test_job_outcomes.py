"""Every way a job can end is booked: done, crashed, hung, failed, cancelled; what was finished stays."""

import os
import time

import pytest
from jobs_tools import until

from fusescope.core.records import case_key
from fusescope.jobs import submit
from fusescope.store import folder, library

pytestmark = pytest.mark.slow


def run_steps(*steps, timeout_s=60, **spec):
    run = submit.wait(submit.submit("steps", {"steps": list(steps), **spec}), timeout_s)
    return run, folder.records(library.find(run.id))


def name(n):
    return case_key("steps", {"n": n}, "float32", "cpu")


def test_a_finished_job_leaves_everything_in_its_folder(home):
    run, records = run_steps("ok", "print", "artifact", "torch", device="cpu")
    path = library.find(run.id)
    assert (run.status, run.reason) == ("done", None)
    assert run.created <= run.started <= run.finished
    assert (run.progress.done, run.progress.total) == (4, 4)
    assert [r.status for r in records] == ["ok"] * 4
    assert [s["ms"] for s in folder.samples(path)] == [[1.0, 2.0]] * 4
    assert (path / "artifacts/folder/made.txt").read_text() == "made by a job"
    assert {"printed by Python", "written by a library"} <= set((path / "log.txt").read_text().splitlines())
    assert run.environment["product"] == 512.0**3  # torch's OpenMP works in a forked process
    assert run.environment["device"] == "cpu" and run.environment["torch"]
    until(lambda: not folder.alive(path), "end of the process that says it is done")
    assert not (path / ".reserve").exists()
    assert submit.queue() == []


def test_crashes_are_booked_on_what_was_being_done_and_the_rest_goes_on(home, tmp_path):
    run, records = run_steps("ok", "segfault", "ok", "exit", "poison", "ok", ledger=str(tmp_path / "ledger"))
    assert run.status == "done"
    assert [r.status for r in records] == ["ok", "crashed", "ok", "crashed", "crashed", "ok"]
    assert "SIGSEGV" in records[1].reason and "about to read address zero" in records[1].reason
    assert "exit code 7" in records[3].reason
    assert "CUDA error" in records[4].reason
    assert (tmp_path / "ledger").read_text().split() == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]  # nothing was done twice
    assert (folder.samples(library.find(run.id))[0]["case_key"], records[0].case_key) == (name(0), name(0))


def test_what_others_wrote_before_is_no_reason_of_a_crash(home):
    _, records = run_steps("print", "exit", "print", "segfault")
    assert [r.status for r in records] == ["ok", "crashed", "ok", "crashed"]
    assert "exit code 7" in records[1].reason and "library" not in records[1].reason
    assert "about to read address zero" in records[3].reason and "library" not in records[3].reason


def test_a_hang_is_ended_at_its_deadline_and_booked(home):
    run, records = run_steps("ok", "hang deaf", "ok", case_deadline_s=0.5)
    assert run.status == "done"
    assert [r.status for r in records] == ["ok", "timeout", "ok"]
    assert "deadline of 0.5 s" in records[1].reason


def test_the_whole_job_has_a_deadline_too(home):
    run, records = run_steps("ok", "hang", deadline_s=1.0)
    assert run.status == "failed" and "limit of 1 s" in run.reason
    assert [r.status for r in records] == ["ok"]


def test_an_exception_is_the_reason_and_its_traceback_is_an_artifact(home):
    run, records = run_steps("ok", "raise", "ok")
    assert (run.status, run.reason) == ("failed", "RuntimeError: the third wheel came off")
    assert len(records) == 1
    path = library.find(run.id)
    assert "third wheel" in (path / "artifacts/traceback.txt").read_text()
    log = (path / "log.txt").read_text()
    assert "Traceback" not in log and "artifacts/traceback.txt" in log


def test_a_crash_with_nothing_in_hand_ends_the_job_with_the_reason(home):
    run, records = run_steps("crash with nothing in hand")
    assert run.status == "failed" and "SIGABRT" in run.reason and records == []


def test_a_crash_right_after_finished_work_gets_another_try_and_no_more(home):
    run, records = run_steps("ok", "crash with nothing in hand", "ok")
    assert run.status == "failed" and "SIGABRT" in run.reason
    assert [r.case["n"] for r in records] == [0]


def test_cancel_stops_at_the_next_check_and_keeps_the_records(home):
    run_id = submit.submit("steps", {"steps": ["ok"] * 200, "pause_s": 0.05})
    path = library.find(run_id)
    until(lambda: len(folder.records(path)) >= 2, "two records")
    submit.cancel(run_id)
    run = submit.wait(run_id, 30)
    assert run.status == "cancelled" and 2 <= len(folder.records(path)) < 200


def test_a_cancelled_run_says_so_at_once_while_its_body_goes_on(home, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_CANCEL_GRACE_S", "1.5")
    run_id = submit.submit("steps", {"steps": ["ok", "hang deaf"]})
    path = library.find(run_id)
    until(lambda: len(folder.records(path)) == 1, "the first record")
    assert submit.begun(run_id) <= time.time() and not submit.cancelling(run_id)
    assert submit.asked(run_id) is None, "it does not wait any more"
    submit.cancel(run_id)
    run = folder.read(path)
    assert run.live and run.progress.message == folder.CANCELLING and run.progress.eta_s is None
    assert submit.cancelling(run_id)
    assert submit.wait(run_id, 30).status == "cancelled" and submit.begun(run_id) is None


def test_cancel_does_not_wait_for_a_body_that_never_checks(home):
    run_id = submit.submit("steps", {"steps": ["ok", "hang deaf"]})
    path = library.find(run_id)
    until(lambda: len(folder.records(path)) == 1, "the first record")
    submit.cancel(run_id)
    run = submit.wait(run_id, 30)
    assert run.status == "cancelled"
    assert [r.status for r in folder.records(path)] == [
        "ok"
    ]  # the hang was the user's wish to end, no time-out


def test_a_cancelled_run_can_be_resumed_and_a_done_one_cannot(home):
    run_id = submit.submit("steps", {"steps": ["ok"] * 8, "pause_s": 0.1})
    until(lambda: folder.records(library.find(run_id)), "a record")
    submit.cancel(run_id)
    assert submit.wait(run_id, 30).status == "cancelled"
    submit.resume(run_id)
    assert submit.wait(run_id, 30).status == "done"
    assert [r.case["n"] for r in folder.records(library.find(run_id))] == list(range(8))
    with pytest.raises(ValueError, match="is done"):
        submit.resume(run_id)


def test_bad_specs_make_no_run(home):
    for spec, message in (
        ({"speps": []}, "takes no speps"),
        ({"deadline_s": -1}, "deadline_s must be a number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            submit.submit("steps", spec)
    with pytest.raises(ValueError, match="unknown job kind 'dance'"):
        submit.submit("dance", {})
    with pytest.raises(ValueError, match="a spec must be an object"):
        submit.submit("steps", [])
    assert not home.exists() or list(home.iterdir()) == []


def test_wait_gives_up_on_time_and_says_how_it_stands(home):
    run_id = submit.submit("steps", {"steps": ["hang"]})
    run = submit.wait(run_id, 0.3)
    assert run.live
    submit.cancel(run_id)
    assert submit.wait(run_id, 30).status == "cancelled"


def test_the_job_sees_the_submitters_folder_and_variables(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = run_steps("ok", ledger="relative-ledger")
    assert run.status == "done" and (tmp_path / "relative-ledger").exists()


def test_nothing_of_a_job_is_left_running(home):
    run_id = submit.submit("steps", {"steps": ["hang deaf"], "case_deadline_s": 0.3})
    run = submit.wait(run_id, 30)
    assert run.status == "done"
    time.sleep(0.2)
    mine = [p for p in os.listdir("/proc") if p.isdigit() and run_id.encode() in _command(p)]
    assert mine == []


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""
