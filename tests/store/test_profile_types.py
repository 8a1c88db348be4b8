"""A profile's JSON files with values of wrong types, at every place: one sentence, or they are shown."""

import copy
import json
import shutil

import pytest

from fusescope.cli.tables import profile_text
from fusescope.core.errors import RunError
from fusescope.core.paths import ROOT
from fusescope.store import profile

WRONG = (None, "x", 7, -1.5, 10**30, True, [], {}, [None], {"a": "b"})


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A run with a whole profile and what lies beside it: a copy of a recorded trace."""
    homes = sorted((ROOT / "profiles" / "recorded").glob("*-trace-*"))
    home = next(h for h in homes if (h / "artifacts" / "summary.json").is_file())
    run = tmp_path_factory.mktemp("run") / home.name
    shutil.copytree(home, run)
    summary = json.loads((run / "artifacts/summary.json").read_text())
    gap = {"ts_ns": 1, "dur_ns": 2, "device": 0, "cause": "other", "before": None, "after": "k"}
    clock = {
        "ranks": [0, 1],
        "host": None,
        "offset_ns": 0,
        "estimate_ns": 1.5,
        "spread_ns": 2,
        "collectives": 9,
    }
    summary |= {"longest_gaps": [gap], "memory": {"reserved_bytes": 1}, "on_device": True, "clocks": [clock]}
    summary |= {"critical_path": [{"rank": 0, "kind": "compute", "ns": 5, "share": 1.0}]}
    summary |= {"ranks": [{"rank": 0, "host": 0, "file": "a.json", "events": 3, "backend": None}]}
    kernel = {"name": "k", "calls": 1, "grid": [1, 1, 1], "block": None, "registers": 4, "shared_bytes": 0}
    kernel |= dict.fromkeys(("total_us", "mean_us", "min_us", "max_us"), 1.5)
    files = {
        "summary": summary,
        "kernels": {"kernels": [kernel]},
        "telemetry": {"count": 3, "source": "nvml", "throttled": 0.5},
        "memory": {"process_peak_bytes": 5, "note": None},
    }
    return run, files


def places(value, at=()):
    """The way to each value below this one; of long lists to the first two."""
    pairs = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, one in pairs:
        yield (*at, key)
        yield from places(one, (*at, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["summary", "kernels", "telemetry", "memory"])
def test_a_value_of_another_type_is_one_sentence_or_shown(traced, name):
    run, files = traced
    file = run / "artifacts" / f"{name}.json"
    refused = 0
    for place in places(files[name]):
        if place[0] in ("metadata", "phases"):
            continue
        for wrong in WRONG:
            data = copy.deepcopy(files[name])
            inner = data
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            file.write_text(json.dumps(data))
            try:
                found = profile.summary(run) if name == "summary" else profile.facts(run, name)
            except RunError as error:
                refused += 1
                assert "is damaged: it" in str(error) or "newer version" in str(error), error
                assert "\n" not in str(error)
            else:
                assert found is not None
    assert refused > 5 * len(list(places(files[name]))) * (name != "memory")


def test_what_passes_can_be_shown(traced, monkeypatch):
    """The verdict, the advice and the tables take every summary that is not refused."""
    run, files = traced
    text = json.dumps(files["summary"])
    for name in files:
        (run / "artifacts" / f"{name}.json").write_text(json.dumps(files[name]))
    assert profile_text.words(profile_text.found(run))
    for key in ("devices", "idle", "coverage", "longest_gaps", "totals", "span_ns", "notes", "gpus", "rows"):
        data = json.loads(text)
        del data[key]
        (run / "artifacts" / "summary.json").write_text(json.dumps(data))
        if key == "notes":
            with pytest.raises(RunError, match="many ranks"):
                profile_text.found(run)
        else:
            profile_text.words(profile_text.found(run))


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "7", "\udcff", '{"schema": 2, "source": "x"}', '{"schema": "1"}']
)
def test_what_is_no_summary_is_one_sentence(traced, text):
    run, _ = traced
    (run / "artifacts" / "summary.json").write_text(text, errors="surrogatepass")
    with pytest.raises(RunError):
        profile.summary(run)
