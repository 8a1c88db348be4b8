"""What pages say of running jobs and of the device: words, share, tab title, live figures."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from fusescope.charts import progress
from fusescope.charts.progress import Moment, last_line, waiting
from fusescope.core.errors import RunError
from fusescope.core.machine import nvml, usage
from fusescope.core.records import Progress, Run
from fusescope.jobs import submit
from fusescope.jobs.process import gpu_lock
from pages._ui.app import device, jobs, redraw


def moment(eta=None, elapsed=None, later=0.0, done=2, total=8) -> Moment:
    return Moment(Progress(done, total, "checking v2", eta, 1000.0), elapsed, 1000.0 + later)


def test_time_goes_on_between_two_words_of_a_job():
    assert moment(30.0, 10.0).words == "2 of 8 · checking v2 · 10 s · about 30 s left"
    assert moment(30.0, 20.0, later=10).words.endswith("20 s · about 20 s left")
    shares = [moment(30.0, 10.0 + t, later=t).share for t in (0, 10, 25, 40, 400)]
    assert shares == sorted(shares) and shares[0] == pytest.approx(0.25) and shares[-1] < 1
    assert moment(30.0, 60.0, later=31).remaining == "longer than expected"


def test_what_is_shown_of_a_job_never_goes_back():
    """A stage that takes longer than its estimate took the bar back and the time left up and down."""
    lefts = [50.0, 6.0, 9.0, 15.0, 14.0, 4.0, 90.0]
    seen = None
    shown = []
    for number, left in enumerate(lefts):
        seen = moment(left, 10.0 * number).after(seen, 5.0)
        shown.append(seen)
    shares = [s.share for s in shown]
    assert shares == sorted(shares) and shares[1] == pytest.approx(10 / 16)
    assert [s.left_s for s in shown] == [50, 6, 6, 15, 14, 4, 90], "9 for 6 is no news, 15 is"
    assert [s.words.rpartition(" · ")[2] for s in shown[3:]] == [
        "about 15 s left",
        "about 15 s left",
        "about 4 s left",
        "longer than expected, about 90 s left",
    ]
    again = moment(40.0, 1.0).after(seen, 99.0)
    assert again.share == pytest.approx(1 / 41) and again.left_s == 40, "it was resumed"
    steps = moment().after(None, None)
    assert steps.share == 0.25 and steps.words == "2 of 8 · checking v2"
    assert moment(30.0, 10.0).after(steps, None).share == 0.25


def test_sidebar_and_page_show_the_same(session, monkeypatch):
    """They renew themselves one after the other; between them the job and the clock go on."""
    now, left = [1000.0], [30.0]
    monkeypatch.setattr(jobs.time, "time", lambda: now[0])
    monkeypatch.setattr(jobs.submit, "begun", lambda run_id: 990.0)

    def look(stage: str) -> progress.Shown:
        words = Progress(1, 8, stage, left[0], now[0])
        return jobs.shown(Run("20260101-000000-bench-abcdef", "bench", {}, "running", progress=words))

    first = look("checking v1")
    now[0], left[0] = 1000.7, 21.0
    assert look("checking v2") == first and "checking v1 · 10 s · about 30 s left" in first.words
    now[0] = 1002.0
    assert "checking v2 · 12 s · about 20 s left" in look("checking v2").words
    assert all(isinstance(v, dict) for v in session["jobs/shown"].values()), "no instances"


def test_a_file_is_told_by_its_name():
    checking = Progress(0, 0, "case 1 of 1: checking /tmp/a b/me/my_norms.py:rms on strided inputs")
    assert Moment(checking, None, 0.0).words.endswith("checking /tmp/a my_norms.py:rms on strided inputs")
    here = Progress(0, 0, "checking my_norms.py:rms, then 3/4 of v1/v2")
    assert Moment(here, None, 0.0).words == here.message


def test_the_sidebar_has_no_line_of_the_log_cut_off(session, monkeypatch):
    """ "before the first…" was all that it had room for; the page has the whole line on hover."""
    drawn = []
    monkeypatch.setattr(jobs.st, "html", drawn.append)
    monkeypatch.setattr(jobs.st, "progress", lambda share, text: None)
    monkeypatch.setattr(jobs.run_data, "log", lambda run_id, last: 'before the "first" <measurement>\n')
    run = Run("20260101-000000-bench-abcdef", "bench", {}, "running")
    jobs.bar(run, small=True)
    assert drawn == []
    jobs.bar(run)
    assert 'title="before the &quot;first&quot; &lt;measurement&gt;"' in drawn[0]


def test_a_job_that_says_no_time_counts_its_steps():
    assert moment().share == 0.25 and moment().words == "2 of 8 · checking v2"
    assert Moment(Progress(), None, 0.0).share == 0 and Moment(Progress(), None, 0.0).words == "working"
    assert moment(0.2, 5.0, later=1).remaining == "about 1 s left", "not late by a moment"


def test_a_job_that_waits_is_told_in_the_same_words_everywhere():
    """The sidebar had "queued, 2 ahead on cuda:0", the page "waiting for cuda:0: place 2 in the queue"."""
    run = Run("20260101-000000-bench-abcdef", "bench", {}, "queued")
    assert jobs._waits(run) == "starting"
    words = gpu_lock.queued("cuda:0", 2)
    assert words == "queued on cuda:0, 2 ahead"
    assert jobs._waits(dataclasses.replace(run, progress=Progress(0, 0, words))) == words


def test_what_waits_says_how_long():
    assert waiting("starting", 1000.0, 1008.4) == "starting · 8 s"
    assert waiting("starting", None, 1008.4) == "starting"
    assert waiting("starting", 1009.0, 1008.4) == "starting · 0 s", "clocks of two machines"


@pytest.mark.parametrize(
    "log, line", [("", ""), ("a\nb\n\n", "b"), ("a\n\x1b[31mred\x1b[0m\n", "[31mred [0m"), ("  x", "x")]
)
def test_the_last_line_of_a_log(log, line):
    assert last_line(log) == line


@pytest.fixture
def session(monkeypatch):
    state = {}
    monkeypatch.setattr(jobs.st, "session_state", state)
    return state


def test_the_tab_says_how_a_job_ended_until_the_visitor_acts(session, monkeypatch):
    now = [50.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    assert jobs.tab_title("Kernels") == "Kernels · FuseScope"
    session["jobs/notice"] = "✓ done · attention", 50.0
    now[0] = 51.0
    assert jobs.tab_title("Kernels") == "✓ done · attention", "redraws that follow the end are our own"
    now[0] = 60.0
    assert jobs.tab_title("Kernels") == "Kernels · FuseScope" == jobs.tab_title("Kernels")


def test_the_device_says_how_many_jobs_wait(monkeypatch):
    """The card of what was queued lay below the end of the screen."""
    drawn = []
    monkeypatch.setattr(device.st, "html", drawn.append)
    monkeypatch.setattr(device, "current", lambda: "cpu")
    monkeypatch.setattr(device, "facts", lambda name: {"device_name": "A CPU"})
    places = [("cpu", 0), ("cpu", 1), ("cpu", 2), ("cuda:0", 1), ("cpu", None)]
    device.status([{"device": name, "place": place} for name, place in places])
    assert "measuring" in drawn[0] and " · cpu · 2&nbsp;queued<" in drawn[0]
    device.status([])
    assert "queued" not in drawn[1]


@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        (["ok", "ok", "unsupported"], "✓ done"),
        (["ok", "wrong"], "✗ done: 1 wrong"),
        (["wrong", "wrong", "oom"], "✗ done: 2 wrong, 1 failed"),
    ],
)
def test_a_notice_says_that_a_function_was_wrong(monkeypatch, statuses, says):
    """It was "✓ done" of a run whose only function of the reader's was wrong."""
    run = Run("20260101-000000-bench-abcdef", "bench", {}, "done", title="mine")
    found = [SimpleNamespace(status=status) for status in statuses]
    monkeypatch.setattr(jobs.run_data, "read", lambda run_id: run)
    monkeypatch.setattr(jobs.run_data, "records", lambda run_id: found)
    assert jobs.ended_text(run.id) == f"{says} · mine"
    assert jobs._farewell(run.id).replace("\\", "") == f"**mine**: {says}"


@pytest.mark.parametrize("status, mark", [("done", "✓"), ("failed", "✗"), ("cancelled", "■")])
def test_the_notice_names_the_job(monkeypatch, status, mark):
    run = Run("20260101-000000-build-abcdef", "build", {}, status, title="my build")
    monkeypatch.setattr(jobs.run_data, "read", lambda run_id: run)
    assert jobs.ended_text(run.id) == f"{mark} {status} · my build"


def test_when_a_run_began_is_unknown_of_one_that_is_not_there():
    assert submit.begun("20260101-000000-build-abcdef") is None


GPU = {
    "sm_mhz": 1755,
    "memory_mhz": 2619,
    "temperature_c": 61,
    "power_w": 412.4,
    "reasons": 0x4,
    "gpu_percent": 97,
    "memory_percent": 40,
    "memory_used_bytes": 3 << 30,
    "memory_total_bytes": 139 << 30,
    "energy_j": 1.0,
}


def test_live_figures_of_a_gpu_have_units_and_leave_out_what_is_not_given():
    rows = dict(device.gpu_rows(GPU))
    assert rows["GPU utilisation"] == "97 %" and rows["Power"] == "412 W" and rows["Temperature"] == "61 °C"
    assert rows["GPU memory"] == "3.00 GiB of 139 GiB" and rows["Clock limited by"] == "power cap"
    assert device.gpu_rows(dict.fromkeys(GPU)) == [] == device.gpu_rows({})
    assert "Clock limited by" not in dict(device.gpu_rows(GPU | {"reasons": 1})), "idle limits nothing"


def test_live_figures_of_the_cpus(monkeypatch):
    ticks, now = iter([(100, 1000), (150, 1100), (150, 1100)]), [0.0]
    monkeypatch.setattr(usage, "_ticks", lambda: next(ticks))
    monkeypatch.setattr(usage.time, "monotonic", lambda: now[0])
    cpus = usage.Cpus()
    assert cpus.read() is None
    now[0] = 2.0
    assert cpus.read() == 0.5
    now[0] = 2.1
    assert cpus.read() == 0.5, "too soon to look again"
    now[0] = 4.0
    assert cpus.read() == 0.5, "no tick has passed"
    used, total = usage.memory()
    assert 0 < used < total


def test_a_gpu_that_nvml_does_not_give_is_a_sentence(monkeypatch):
    def fails(uuid):
        raise nvml.NvmlError("NVML cannot be opened")

    monkeypatch.setattr(nvml, "Reader", fails)
    assert usage.gpu("GPU-1") == "NVML cannot be opened"


def test_a_page_in_the_colours_of_another_theme_is_drawn_again(monkeypatch):
    theme, again = ["light"], []
    monkeypatch.setattr(redraw.st, "session_state", {})
    monkeypatch.setattr(redraw.style, "theme", lambda: theme[0])
    monkeypatch.setattr(redraw, "whole_page", lambda: again.append(theme[0]))
    redraw.in_theme()
    redraw.in_theme()
    theme[0] = "dark"
    redraw.in_theme()
    redraw.in_theme()
    assert again == ["dark"]


def test_cancel_draws_nothing_from_its_fragment(session, monkeypatch):
    """A toast from there took the place of the page's style: for a second the page had none."""

    def gone(run_id):
        raise RunError(f"{run_id} has ended")

    monkeypatch.setattr(jobs.st, "toast", None)
    monkeypatch.setattr(jobs.submit, "cancel", lambda run_id: None)
    jobs._cancel("a")
    monkeypatch.setattr(jobs.submit, "cancel", gone)
    jobs._cancel("b")
    assert session == {"jobs/toasts": ["b has ended"]}, "said when the page is drawn again"


@pytest.mark.parametrize(
    ("reason", "ends"),
    [("cancelled by user", "■ cancelled"), ("the device was lost", " · the device was lost")],
)
def test_a_notice_says_once_how_a_job_ended(monkeypatch, reason, ends):
    run = Run("20260101-000000-bench-abcdef", "bench", {}, "cancelled", reason=reason, title="mine")
    monkeypatch.setattr(jobs.run_data, "read", lambda run_id: run)
    assert jobs._farewell(run.id).endswith(ends)
