"""What got slower over all runs raises an alarm, with its cause; noise and improvement raise none."""

import json

import pytest

from fusescope import cli
from fusescope.analysis.compare import regressions
from fusescope.charts.bench import history
from fusescope.store import compare

CASE = {"n": 1000}


def write(home, number, times, commit="c0ffee", spread=0.005, torch="2.11.0", converged=True, busy=None):
    """A run of ``add``: {implementation: (ms, source hash or None)}."""
    run_id = f"202611{number:02d}-120000-bench-{number:06x}"
    path = home / run_id
    path.mkdir()
    spec = {"op": "add", "impls": list(times), "cases": [CASE], "baseline": "eager", "dtype": "float16"}
    run = {
        "schema": 1,
        "id": run_id,
        "kind": "bench",
        "spec": spec,
        "status": "done",
        "created": 1e9 + number,
    }
    run |= {"started": 1e9 + number, "finished": 1e9 + number + 0.5}
    run["environment"] = {"device_name": "NVIDIA H200", "git_commit": commit, "torch": torch}
    (path / "run.json").write_text(json.dumps(run))
    lines = []
    for impl, (ms, source) in times.items():
        t = {"median": ms, "low": ms * (1 - spread), "high": ms * (1 + spread), "n": 50}
        t |= {"converged": converged}
        line = {"op": "add", "impl": impl, "case": CASE, "dtype": "float16", "device": "cuda:0"}
        line |= {"status": "ok", "reason": None, "time_ms": {"first": 1.0, "graph": t}, "source_hash": source}
        line |= {"conditions": {"busy": busy, "busy_rounds": 1.0}} if busy else {}
        lines.append(json.dumps(line))
    (path / "results.jsonl").write_text("\n".join(lines) + "\n")
    return run_id


def alarms():
    return regressions.alarms(regressions.series(compare.history()))


@pytest.mark.parametrize(
    ("now", "eager", "cause"),
    [
        (("v1_x", 1.2, "new"), 1.0, "code"),
        (("v1_x", 1.2, "new"), 1.2, "machine"),
        (("v1_x", 1.2, "old"), 1.0, "unknown"),
    ],
)
def test_a_slower_newest_run_raises_an_alarm_with_its_cause(profiles, now, eager, cause):
    impl, ms, source = now
    write(profiles, 1, {impl: (1.1, "older"), "eager": (1.0, None)})
    best = write(profiles, 2, {impl: (1.0, "old"), "eager": (1.0, None)}, commit="aaaa")
    last = write(profiles, 3, {impl: (ms, source), "eager": (eager, None)}, commit="bbbb")
    found = {alarm.series.impl: alarm for alarm in alarms()}
    alarm = found[impl]
    assert alarm.cause == cause and alarm.ratio.median == pytest.approx(1 / 1.2)
    assert (alarm.series.best.run, alarm.series.last.run) == (best, last)
    assert (alarm.series.best.commit, alarm.series.last.commit) == ("aaaa", "bbbb")
    assert "eager" not in found, "a peer is no kernel of ours or yours"


def test_noise_small_changes_and_improvements_raise_none(profiles):
    write(profiles, 1, {"v1_x": (1.0, "a"), "v2_x": (1.0, "a"), "v3_x": (1.0, "a")}, spread=0.005)
    write(profiles, 2, {"v1_x": (1.04, "b"), "v2_x": (0.5, "b"), "v4_x": (9.0, "b")}, spread=0.005)
    assert alarms() == []
    write(profiles, 3, {"v1_x": (1.2, "c")}, spread=0.2)
    assert alarms() == []
    found = regressions.series(compare.history())
    ((noisy, why),) = regressions.undecided(found)
    assert len(regressions.followed(found)) == 2 and noisy.impl == "v1_x" and "too wide" in why.open
    assert history.alarm_sentence(found, []) == (
        "No regression found; 1 of 2 comparisons is undecided: v1_x, the interval is too wide."
    )
    steady = [one for one in found if one.impl != "v1_x"]
    assert history.alarm_sentence(steady, []).startswith("No regression: none of 1 ")
    assert history.alarm_sentence([], []).startswith("No implementation of ours or yours was measured twice")


@pytest.mark.parametrize(
    ("busy", "converged", "why"),
    [
        ((None, None), (False, False), "sampling did not converge in both runs"),
        ((None, None), (True, False), "sampling did not converge in the newest run"),
        (("7 CPUs", "7 CPUs"), (False, False), "the machine was busy in both runs"),
        ((None, "7 CPUs"), (True, True), "the machine was busy in the newest run"),
        (("7 CPUs", None), (True, True), "the machine was busy in the earlier run"),
    ],
)
def test_unsteady_times_and_a_busy_machine_raise_none_and_are_named(profiles, busy, converged, why):
    """Eager that did not converge on a busy machine was "6.86× slower (cause: unknown)"."""
    times = {"v1_x": (1.0, "a"), "eager": (1.0, None)}
    for number, factor in ((1, 1.0), (2, 6.86)):
        now = {name: (ms * factor, source) for name, (ms, source) in times.items()}
        spread = 0.005 if converged[number - 1] else 0.4
        write(profiles, number, now, spread=spread, converged=converged[number - 1], busy=busy[number - 1])
    found = regressions.series(compare.history())
    assert regressions.alarms(found) == []
    assert history.alarm_sentence(found, []) == (
        f"No regression found; 1 of 1 comparisons is undecided: v1_x, {why}."
    )
    (line,) = history.undecided_table(regressions.undecided(found)).to_dict("records")
    assert (line["implementation"], line["undecided because"]) == ("v1_x", why)


def test_peers_measured_twice_are_no_comparison(profiles):
    write(profiles, 1, {"eager": (1.0, None)})
    write(profiles, 2, {"eager": (3.0, None)})
    found = regressions.series(compare.history())
    assert (regressions.followed(found), regressions.alarms(found)) == ([], [])
    assert cli.main(["regressions", "--impl", "eager"]) == 2, "it would never fail"


def test_an_unsteady_faster_run_hides_no_regression(profiles):
    """A time that did not converge is no best, so the newest is compared with one that did."""
    steady = write(profiles, 1, {"v1_x": (1.0, "a")})
    write(profiles, 2, {"v1_x": (0.9, "a")}, converged=False)
    write(profiles, 3, {"v1_x": (1.2, "b")})
    (alarm,) = alarms()
    assert alarm.series.best.run == steady and alarm.ratio.median == pytest.approx(1 / 1.2)


def test_a_peer_of_another_torch_is_no_control(profiles):
    write(profiles, 1, {"v1_x": (1.0, "a"), "eager": (1.0, None)})
    write(profiles, 2, {"v1_x": (1.2, "b"), "eager": (1.0, None)}, torch="2.13.0")
    (alarm,) = alarms()
    assert alarm.control is None and alarm.cause == "unknown"


def test_the_verb_answers_with_exit_code_1_where_anything_is_slower(profiles, capsys):
    write(profiles, 1, {"v1_x": (1.0, "a"), "eager": (1.0, None)})
    assert cli.main(["regressions"]) == 0
    write(profiles, 2, {"v1_x": (1.5, "b"), "eager": (1.0, None)})
    capsys.readouterr()
    assert cli.main(["regressions", "--op", "add", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["followed"], data["undecided"]) == (1, []) and [a["impl"] for a in data["alarms"]] == [
        "v1_x"
    ]
    schema = json.loads((cli_schemas() / "regressions.json").read_text())
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(data, schema)
    assert cli.main(["regressions"]) == 1
    text = capsys.readouterr().out
    assert "the worst is v1_x, 1.50× slower" in text and "(cause: code)" in text
    assert cli.main(["regressions", "--threshold", "60"]) == 0
    assert cli.main(["regressions", "--threshold", "-1"]) == 2


@pytest.mark.slow
def test_the_verb_refuses_names_that_no_run_has(profiles, capsys):
    """A misspelt name guards nothing: exit code 0 would hold for ever."""
    assert cli.main(["regressions", "--op", "ad"]) == 0, "there is no run at all yet"
    write(profiles, 1, {"v1_x": (1.0, "a")})
    write(profiles, 2, {"v1_x": (1.5, "b")})
    for words in (["--op", "ad"], ["--impl", "v1_y"], ["--device", "nothing", "--json"]):
        capsys.readouterr()
        assert cli.main(["regressions", *words]) == 2
        said = capsys.readouterr()
        assert words[1] in said.err and "there is " in said.err and not said.out
    assert cli.main(["regressions", "--op", "add", "--impl", "v1_x"]) == 1


def cli_schemas():
    from pathlib import Path

    return Path(cli.__file__).parents[1] / "schemas"
