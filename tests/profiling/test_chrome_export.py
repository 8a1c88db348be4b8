"""Tables as a Chrome trace: what is read again is what was there."""

import json

import pytest
from made_up import DATA, kernel, launch, load, op, tables, trace, x

from fusescope.core.errors import RunError
from fusescope.profiling.nsight import nsys
from fusescope.store import chrome, profile


def again(run, tmp_path):
    """The exported trace imported once more: (summary, tables)."""
    file = tmp_path / "again.json"
    file.write_bytes(b"".join(chrome.trace(run, rows=2)))
    json.loads(file.read_text())
    return load(file, tmp_path / "again")


def test_times_names_and_lanes_survive(tmp_path):
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 90),
        op('a "quoted" <name>', 1, 20.001, 1),
        launch(1, 5, 2.5, tid="loader"),
    ]
    events += [kernel(1, 10, 8.003, "k<1>(int)", stream=7), kernel(2, 30, 0.002, "k2", stream=20)]
    events.append(x("gpu_memcpy", "Memcpy HtoD", 50, 3, {"device": 0, "stream": 7, "bytes": 64}))
    base = {"baseTimeNanoseconds": 1790857026000000000}
    before, _ = load(trace(tmp_path / "t.json", events, **base), tmp_path / "artifacts")
    after, found = again(tmp_path, tmp_path)
    assert after["totals"] == before["totals"] and after["span_ns"] == before["span_ns"]
    assert [(k["name"], k["dur_ns"], k["stream"], k["ts_ns"]) for k in found["kernels"]] == [
        (k["name"], k["dur_ns"], k["stream"], k["ts_ns"]) for k in tables(tmp_path / "artifacts")["kernels"]
    ]
    assert found["operators"][0]["name"] == 'a "quoted" <name>' and found["copies"][0]["bytes"] == 64
    assert after["coverage"]["launch"] == 0.5


def test_what_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "artifacts").mkdir()
    with pytest.raises(RunError, match="no events"):
        chrome.trace(tmp_path)
    load(trace(tmp_path / "t.json", [kernel(n, n, 1) for n in range(5)]), tmp_path / "artifacts")
    monkeypatch.setattr(chrome, "MOST", 4)
    with pytest.raises(RunError, match="holds 5 events; up to 4"):
        chrome.trace(tmp_path)


@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real files at {DATA}")
def test_an_export_of_nsight_systems_becomes_a_trace(tmp_path):
    (tmp_path / "artifacts").mkdir()
    nsys.load(DATA / "nsight" / "nsys_power_iteration.sqlite", lambda name: tmp_path / "artifacts" / name)
    _, found = again(tmp_path, tmp_path)
    before = profile.rows(tmp_path, "kernels")
    assert sum(k["dur_ns"] for k in found["kernels"]) == sum(k["dur_ns"] for k in before) and len(
        found["kernels"]
    ) == len(before)
