"""Nsight Systems exports: totals equal SQL's own, tables and columns may be missing, and what is none is
said."""

import sqlite3

import pytest
from made_up import DATA, tables

from fusescope.profiling.nsight import nsys

REAL = DATA / "nsight" / "nsys_power_iteration.sqlite"
PROCESS = 0x1000000 * 77


def export(path, *, version="3.20.2", rows=(), more=()):
    """A made-up export: StringIds, META_DATA_EXPORT, and the tables given as (name, columns, rows)."""
    con = sqlite3.connect(path)
    strings = {
        1: "void k<int>(int)",
        2: "cudaLaunchKernel_v7000",
        3: "cudaGraphLaunch_v10000",
        4: "from strings",
    }
    given = [
        (
            "META_DATA_EXPORT",
            "name, value",
            [("EXPORT_SCHEMA_VERSION", version), ("EXPORT_SCHEMA_VERSION_MAJOR", version.split(".")[0])],
        ),
        ("StringIds", "id, value", list(strings.items())),
        *rows,
        *more,
    ]
    for name, columns, values in given:
        con.execute(f"CREATE TABLE {name} ({columns})")
        con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns.split(',')))})", values)
    con.commit()
    con.close()
    return path


KERNEL = (
    "start, end, deviceId, streamId, correlationId, globalPid, shortName, registersPerThread, "
    "gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory"
)
ONE_KERNEL = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    KERNEL,
    [(100, 150, 0, 7, 5, PROCESS, 1, 32, 40, 1, 1, 128, 1, 1, 1024, 2048)],
)
GPU = ("TARGET_INFO_GPU", "id, name, computeMajor, computeMinor, smCount", [(0, "Tesla T4", 7, 5, 40)])


def load(path, out):
    out.mkdir(exist_ok=True)
    return nsys.load(path, lambda name: out / name), tables(out)


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real export at {REAL}")
def test_a_real_export_has_the_totals_of_sql(tmp_path):
    before = REAL.stat()
    summary, rows = load(REAL, tmp_path / "out")
    assert REAL.stat().st_mtime_ns == before.st_mtime_ns and [p.name for p in REAL.parent.glob("nsys*")] == [
        REAL.name
    ]
    con = sqlite3.connect(f"file:{REAL}?mode=ro", uri=True)
    asked = {
        "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
        "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
        "runtime": "CUPTI_ACTIVITY_KIND_RUNTIME",
        "sync": "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "osrt": "OSRT_API",
        "overhead": "PROFILER_OVERHEAD",
        "nvtx": "NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NOT NULL",
    }
    for cat, table in asked.items():
        assert (summary["totals"][cat]["events"], summary["totals"][cat]["total_ns"]) == con.execute(
            f"SELECT COUNT(*), SUM(end - start) FROM {table}"
        ).fetchone()
    by_name = con.execute(
        "SELECT s.value, COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL "
        "JOIN StringIds s ON s.id = demangledName GROUP BY s.value"
    ).fetchall()
    assert {(r["name"], r["calls"], r["total_ns"]) for r in rows["kernel_summary"]} == set(by_name)
    linked = con.execute(
        "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
        "ON r.correlationId = k.correlationId AND (r.globalTid & ~0xFFFFFF) = k.globalPid"
    ).fetchone()[0]
    assert summary["coverage"]["launch"] == linked / summary["rows"]["kernels"] == 1.0
    assert summary["gpus"] == [{"id": 0, "name": "Tesla T4", "cc": "7.5", "sms": 40}]
    assert (
        sum(c["bytes"] for c in rows["copies"])
        == con.execute("SELECT SUM(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()[0]
    )


def test_only_the_tables_and_columns_that_are_there(tmp_path):
    summary, rows = load(export(tmp_path / "a.sqlite", rows=[ONE_KERNEL, GPU]), tmp_path / "out")
    row = rows["kernels"][0]
    assert (row["name"], row["dur_ns"], row["shared_bytes"], row["graph_node"], row["launch"]) == (
        "void k<int>(int)",
        50,
        3072,
        None,
        -1,
    )
    assert row["occupancy"] == 1.0 and row["grid_occupancy"] == pytest.approx(1 * 4 / 32)
    assert any("times are relative" in n for n in summary["notes"])


def test_launches_are_scoped_to_their_process(tmp_path):
    other = 0x1000000 * 78
    two = (*ONE_KERNEL[:2], [*ONE_KERNEL[2], (300, 310, 0, 7, 5, other, 1, 32, 1, 1, 1, 32, 1, 1, 0, 0)])
    calls = (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start, end, globalTid, correlationId, nameId",
        [(90, 95, PROCESS + 12, 5, 2), (290, 295, other + 13, 5, 3)],
    )
    ranges = (
        "NVTX_EVENTS",
        "start, end, eventType, text, textId, globalTid",
        [
            (80, 99, 59, "own text", None, PROCESS + 12),
            (285, 299, 59, None, 4, other + 13),
            (1, None, 34, "mark", None, 5),
        ],
    )
    _, rows = load(export(tmp_path / "a.sqlite", rows=[two, calls, ranges]), tmp_path / "out")
    assert [(k["launch_delay_ns"], k["operator_name"]) for k in rows["kernels"]] == [
        (10, "own text"),
        (10, "from strings"),
    ]
    assert rows["launches"][0]["pid"] == "77" and rows["launches"][0]["tid"] == "12"


def test_events_that_do_not_say_when_are_left_out_and_the_others_keep_their_texts(tmp_path):
    ranges = (
        "NVTX_EVENTS",
        "start, end, eventType, textId, text",
        [(None, 5, 59, None, "lost"), (80, 99, 59, None, "kept"), (1 << 62, 9, 59, 1, None)],
    )
    far = ("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", [((1 << 63) - 1,)])
    summary, rows = load(export(tmp_path / "a.sqlite", rows=[ONE_KERNEL, ranges, far]), tmp_path / "out")
    assert [(r["name"], r["ts_ns"], r["dur_ns"]) for r in rows["operators"]] == [("kept", 80, 19)]
    assert any("times are relative" in n for n in summary["notes"])


def test_graphs_traced_as_a_whole_are_said(tmp_path):
    graphs = (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "start, end, deviceId, streamId, graphId",
        [(200, 260, 0, 7, 1), (300, 330, 0, 7, 1)],
    )
    summary, rows = load(export(tmp_path / "a.sqlite", rows=[ONE_KERNEL, graphs]), tmp_path / "out")
    assert summary["totals"]["graph"] == {"events": 2, "total_ns": 90} and any(
        "--cuda-graph-trace=node" in n for n in summary["notes"]
    )
    assert [r["name"] for r in rows["ranges"]] == ["CUDA graph as a whole"] * 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.write_bytes(b"SQLite format 3\0" + b"x" * 500), "damaged or truncated SQLite"),
        (lambda p: sqlite3.connect(p).executescript("CREATE TABLE t (a)"), "no export of Nsight Systems"),
        (lambda p: export(p, version="9.1.0", rows=[ONE_KERNEL]), "export schema 9; 2 and 3 can be read"),
        (lambda p: export(p), "nothing to show"),
        (lambda p: export(p, rows=[("CUPTI_ACTIVITY_KIND_KERNEL", "x", [(1,)])]), "has no column start"),
        (
            lambda p: export(
                p,
                rows=[
                    ("NVTX_EVENTS", "start, end, eventType", [(None, 5, 59), ("a", 5, 59), (1 << 62, 5, 59)])
                ],
            ),
            "nothing to show",
        ),
    ],
)
def test_what_is_no_export_gets_one_sentence(make, says, tmp_path):
    path = tmp_path / "theirs.sqlite"
    make(path)
    with pytest.raises(ValueError, match=says):
        load(path, tmp_path / "out")


@pytest.mark.skipif(not REAL.is_file(), reason=f"no real export at {REAL}")
def test_a_truncated_export(tmp_path):
    path = tmp_path / "cut.sqlite"
    path.write_bytes(REAL.read_bytes()[:300_000])
    with pytest.raises(ValueError, match="damaged or truncated"):
        load(path, tmp_path / "out")
