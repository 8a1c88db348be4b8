"""Traces and exports with times that cannot be, and events that only names place: read, refused or noted."""

import json

import pytest
from made_up import H200, kernel, launch, load, op, trace
from test_nsys import KERNEL, ONE_KERNEL, export
from test_nsys import load as load_nsys

from fusescope.profiling.chrome.events import Decoder

WHOLE = [op("aten::mm", 0, 10), launch(1, 1), kernel(1, 5, 3.5, "good")]


@pytest.mark.slow
@pytest.mark.parametrize("dur", ["NaN", "nan", "-5", "-0.001", "null", '"text"', "Infinity", "-Infinity"])
@pytest.mark.parametrize("fast", [True, False])
def test_a_length_that_is_none_costs_its_event_and_is_noted(dur, fast, tmp_path):
    text = json.dumps({"deviceProperties": [H200], "traceEvents": [*WHOLE, kernel(2, 20, "LENGTH", "bad")]})
    (tmp_path / "t.json").write_text(text.replace('"LENGTH"', dur))
    summary, rows = load(tmp_path / "t.json", tmp_path / "out", Decoder(fast))
    assert [(k["name"], k["dur_ns"]) for k in rows["kernels"]] == [("good", 3500)]
    assert any("1 events have no time, no end or a negative length" in n for n in summary["notes"])


def test_a_length_of_zero_is_one(tmp_path):
    summary, rows = load(trace(tmp_path / "t.json", [*WHOLE, kernel(2, 20, 0, "empty")]), tmp_path / "out")
    assert [k["dur_ns"] for k in rows["kernels"]] == [3500, 0]
    assert not any("no end" in n for n in summary["notes"])


def test_streams_that_hold_more_than_their_time_are_noted(tmp_path):
    events = [kernel(n, 10 * n, 5000, f"k{n}") for n in range(20)]
    summary, _ = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert any("stream 7 take 100 ms within 5.19 ms" in n for n in summary["notes"])
    sound, _ = load(
        trace(tmp_path / "s.json", [kernel(n, 10 * n, 12, f"k{n}") for n in range(20)]), tmp_path / "sound"
    )
    assert not any("take" in n and "within" in n for n in sound["notes"]), (
        "dependent launches overlap a little"
    )


def named(kind, pid, name, tid=None):
    where = {"pid": pid} | ({} if tid is None else {"tid": tid})
    return {"ph": "M", "name": kind, "args": {"name": name}} | where


def xla(pid, tid, name, ts, dur=2.5):
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {"hlo_op": name}}


XPROF = [
    named("process_name", 1, "/device:GPU:3"),
    named("thread_name", 1, "Stream #13(MemcpyH2D)", 13),
    named("thread_name", 1, "Stream #14(Compute)", 14),
    named("thread_name", 1, "XLA Ops", 90),
    named("process_name", 701, "/host:CPU"),
    named("thread_name", 701, "python", 5),
    xla(701, 5, "PjitFunction(f)", 0, 100),
    xla(1, 13, "MemcpyH2D", 10),
    xla(1, 14, "loop_add_fusion", 20),
    xla(1, 14, "gemm_fusion_dot", 23),
    xla(1, 90, "fusion.1", 20, 6),
]


@pytest.mark.parametrize("order", [1, -1])
def test_devices_of_a_jax_trace_have_kernels_and_copies(order, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": XPROF[::order]}))
    summary, rows = load(tmp_path / "t.json", tmp_path / "out")
    found = sorted((k["name"], k["device"], k["stream"], k["dur_ns"]) for k in rows["kernels"])
    assert found == [("gemm_fusion_dot", 3, 14, 2500), ("loop_add_fusion", 3, 14, 2500)]
    (copy,) = rows["copies"]
    assert (copy["name"], copy["kind"], copy["device"], copy["bytes"]) == ("MemcpyH2D", "HtoD", 3, None)
    assert sorted(r["name"] for r in rows["ranges"]) == ["PjitFunction(f)", "fusion.1"]
    assert any("XLA's profiler: 3 events of 1 device " in n for n in summary["notes"])
    assert summary["devices"][0]["device"] == 3 and summary["devices"][0]["kernel_ns"] == 5000


def test_a_tpu_has_its_ops(tmp_path):
    events = [named("process_name", 2, "/device:TPU:0"), named("thread_name", 2, "XLA Ops", 3)]
    (tmp_path / "t.json").write_text(json.dumps([*events, xla(2, 3, "fusion", 1), xla(2, 4, "Steps", 1)]))
    _, rows = load(tmp_path / "t.json", tmp_path / "out")
    assert [k["name"] for k in rows["kernels"]] == ["fusion"] and rows["ranges"][0]["name"] == "Steps"


def test_a_device_without_a_known_thread_of_kernels_is_named(tmp_path):
    events = [*XPROF, named("process_name", 2, "/device:GPU:5"), named("thread_name", 2, "Framework Ops", 9)]
    events += [xla(2, 9, "fusion", 1), xla(2, 9, "fusion", 4)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    summary, rows = load(tmp_path / "t.json", tmp_path / "out")
    assert [d["device"] for d in summary["devices"]] == [3]
    assert any("3 events of 1 device " in n for n in summary["notes"])
    assert any(
        "device 5 has 2 events and no thread known to hold kernels ('Framework Ops')" in n
        for n in summary["notes"]
    )
    (tmp_path / "u.json").write_text(json.dumps(events[len(XPROF) :]))
    summary, rows = load(tmp_path / "u.json", tmp_path / "out2")
    assert not rows.get("kernels") and any(n.startswith("device 5 has 2 events") for n in summary["notes"])


def test_names_of_processes_alone_move_nothing(tmp_path):
    names = [named("process_name", 1, "python"), named("thread_name", 1, "stream 7", 7)]
    summary, rows = load(trace(tmp_path / "t.json", [*names, *WHOLE]), tmp_path / "out")
    assert len(rows["kernels"]) == 1 and not any("XLA" in n for n in summary["notes"])


def test_kernels_of_an_export_without_sound_times_are_counted(tmp_path):
    whole = ONE_KERNEL[2][0]
    bad = [("soon", *whole[1:]), (100, "later", *whole[2:]), (100, 50, *whole[2:]), (100, None, *whole[2:])]
    file = export(tmp_path / "a.sqlite", rows=[("CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, [whole, *bad])])
    summary, rows = load_nsys(file, tmp_path / "out")
    assert [k["dur_ns"] for k in rows["kernels"]] == [50]
    assert any("4 rows of CUPTI_ACTIVITY_KIND_KERNEL have no time" in n for n in summary["notes"])


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"])
def test_views_are_refused_where_a_table_should_be(table, tmp_path):
    import sqlite3

    file = export(tmp_path / "a.sqlite", rows=[ONE_KERNEL])
    con = sqlite3.connect(file)
    con.execute(f"ALTER TABLE {table} RENAME TO hidden")
    con.execute(f"CREATE VIEW {table} AS SELECT * FROM hidden")
    con.commit()
    con.close()
    with pytest.raises(ValueError, match=f"{table} is a view"):
        load_nsys(file, tmp_path / "out")


def test_views_of_ones_own_do_not_matter(tmp_path):
    import sqlite3

    file = export(tmp_path / "a.sqlite", rows=[ONE_KERNEL])
    con = sqlite3.connect(file)
    con.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL_NAMED AS SELECT * FROM StringIds")
    con.commit()
    con.close()
    assert len(load_nsys(file, tmp_path / "out")[1]["kernels"]) == 1


def test_events_without_a_phase_are_counted(tmp_path):
    events = [op("a", 0, 10), op("b", 20, 10), op("c", 40, 10)]
    del events[1]["ph"]
    summary, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [o["name"] for o in rows["operators"]] == ["a", "c"]
    assert any(note.startswith("1 events have no phase (ph)") for note in summary["notes"])
