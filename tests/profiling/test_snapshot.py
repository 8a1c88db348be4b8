"""Memory snapshots: sums of the history, and pickles that carry code are refused unexecuted."""

import os
import pickle

import pytest
from made_up import tables

from fusescope.profiling.collect import snapshot


def load(path, out):
    out.mkdir(exist_ok=True)
    return snapshot.load(path, lambda name: out / name), tables(out)


def test_the_history_is_summed(tmp_path):
    def event(action, size, time_us, **more):
        return {"action": action, "size": size, "addr": 7, "stream": 0, "time_us": time_us, **more}

    frames = [
        {"filename": "??", "line": 0, "name": "c10"},
        {"filename": "/a/model.py", "line": 12, "name": "forward"},
    ]
    history = [
        event("segment_alloc", 2048, 1),
        event("alloc", 1024, 2, frames=frames),
        event("alloc", 512, 3),
    ]
    history += [event("free_requested", 1024, 4), event("free_completed", 1024, 5)]
    held = {
        "device": 0,
        "address": 7,
        "total_size": 2048,
        "allocated_size": 512,
        "active_size": 512,
        "stream": 0,
        "blocks": [{}, {}],
    }
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps({"segments": [held], "device_traces": [history, [event("alloc", 100, 9)]]}))
    summary, rows = load(path, tmp_path / "out")
    assert [m["allocated"] for m in rows["memory"]] == [0, 1024, 1536, 1536, 512, 100]
    assert [m["reserved"] for m in rows["memory"]] == [2048] * 5 + [0]
    assert rows["memory"][1]["where"] == "model.py:12 forward" and rows["memory"][1]["ts_ns"] == 2000
    assert summary["memory"] == {"reserved_bytes": 2048, "allocated_bytes": 512, "history_peak_bytes": 1536}
    assert rows["segments"][0]["blocks"] == 2


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickle.dumps({"segments": [Evil()]}), "plain values only"),
        (pickle.dumps([1, 2]), "no list of segments"),
        (pickle.dumps({"segments": []})[:-4], "no memory snapshot, or is damaged"),
        (b"\x80\x04" + b"]" * 10 + b"q", "damaged"),
    ],
)
def test_what_is_no_snapshot_gets_one_sentence(content, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.pickle").write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        load(tmp_path / "theirs.pickle", tmp_path / "out")
    assert str(error.value).startswith("theirs.pickle") and not (tmp_path / "executed").exists()


def test_a_snapshot_without_history_says_how_to_get_one(tmp_path):
    (tmp_path / "a.pickle").write_bytes(pickle.dumps({"segments": []}))
    assert "_record_memory_history" in load(tmp_path / "a.pickle", tmp_path / "out")[0]["notes"][0]
