"""Listing and filtering over many runs agrees with the folders, follows their changes, and survives its own
deletion."""

import gzip
import json
import os
import shutil
import sys
import time

import pytest
from make_runs import make

from fusescope.core.errors import RunError
from fusescope.core.records import Speedup
from fusescope.store import folder, library, transfer
from fusescope.store.index import database
from fusescope.store.index import records as index_records
from fusescope.store.index import runs as index_runs


@pytest.fixture
def runs(profiles):
    make(profiles, 60, 20)
    return profiles


def settle():
    """Wait until folders changed a moment ago count as settled."""
    time.sleep(index_runs.SETTLED_NS / 1e9 + 0.02)


def test_listing_is_newest_first_in_pages_with_the_total(runs):
    page, total = library.runs(limit=7)
    assert total == 60 and [r.title for r in page] == [f"sweep {i}" for i in range(59, 52, -1)]
    page, total = library.runs(limit=7, offset=56)
    assert total == 60 and [r.title for r in page] == [f"sweep {i}" for i in range(3, -1, -1)]
    assert page[0] == folder.read(library.find(page[0].id))


def test_a_list_is_made_once_until_a_run_changes(runs, monkeypatch):
    settle()
    made = []
    monkeypatch.setattr(library, "_page", lambda *given, _make=library._page: made.append(1) or _make(*given))
    first = library.runs(limit=7)
    first[0].clear()  # the caller's own list
    again = library.runs(limit=7)
    assert len(again[0]) == 7 and made == [1]
    assert library.runs(limit=8) != again and made == [1, 1]
    folder.write_notes(library.find(again[0][0].id), tags=["new"])
    assert library.runs(limit=7)[0][0].tags == ("new",) and made == [1, 1, 1]


@pytest.mark.sample(1, "speed-up")
@pytest.mark.slow
@pytest.mark.parametrize("order", library.ORDERS)
def test_a_list_is_ordered_as_asked_over_all_its_pages(runs, order):
    for n, path in enumerate(sorted(p for p in runs.iterdir() if (p / "run.json").exists())):
        data = json.loads((path / "run.json").read_text())
        data["finished"] = data["started"] + n * 37 % 60 if n else None
        (path / "run.json").write_text(json.dumps(data))
        gain = 1.5 + n * 7 % 11
        speedup = {"of": "graph", "median": gain, "low": 0.99 * gain, "high": 1.01 * gain}
        lines = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
        lines = [r | {"speedup": speedup if r["time_ms"] and n % 3 else None} for r in lines]
        (path / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))

    def best(run):
        found = [r.speedup.median for r in folder.records(library.find(run.id)) if r.speedup]
        return max(found, default=0.0)

    def key(run):
        took = run.finished - run.started if run.finished else -1.0
        return {"newest": run.ended, "oldest": -run.ended, "longest": took, "speed-up": best(run)}[order]

    pages = [library.runs(limit=25, offset=at, order=order)[0] for at in (0, 25, 50)]
    listed = [key(run) for page in pages for run in page]
    assert len(listed) == 60 and listed == sorted(listed, reverse=True)


def test_synonyms_and_values_of_cases_are_found(profiles):
    plain, packed = ({"op": "attention", "cases": [{"seq": 512, "lengths": w}]} for w in ("fixed", "drawn"))
    for spec in (plain, packed):
        folder.create("bench", spec | {"dtype": "float16"})
    words = (
        ("padded", 1),
        ("unequal", 1),
        ("packed seq=512", 1),
        ("fp16", 2),
        ("half varlen", 1),
        ("fp32", 0),
    )
    for text, count in words:
        assert library.runs(text=text)[1] == count, text
    folder.create("model", {"op": "model:gpt2", "cases": [{"seq": 512, "phase": "decode"}]})
    assert library.runs(text="gpt-2 decoding")[1] == 1


def test_words_in_quotes_are_one_and_adjacent_words_come_first(profiles):
    cases = [{"seq": 8, "mask": mask} for mask in ("full", "causal", "bigbird")]
    titles = ("masks of 8 heads", "8 masks", "3 shapes")
    ids = [folder.create("bench", {"op": "attention", "cases": cases}, title=title).name for title in titles]
    found, total = library.runs(text="8 masks")
    assert total == 3 and found[0].id == ids[1], "all have the words, one has them together"
    for text, count in (
        ('"8 masks"', 1),
        ("“8 MASKS”", 1),
        ('"3 masks"', 3),
        ('"masks 8"', 0),
        ('"8', 3),
        ('""', 3),
    ):
        assert library.runs(text=text)[1] == count, text
    assert library.runs(text='"3 masks" heads')[1] == 1


def test_a_phrase_is_of_one_field(profiles):
    run_id = folder.create("bench", {"op": "softmax"}, title="8 shapes").name
    assert library.runs(text=f"{run_id} 8 shapes")[1] == 1, "each of its words occurs"
    assert library.runs(text=f'"{run_id[-4:]} 8"')[1] == 0, "what stands after it in the index is the title"


def test_the_verdict_in_sql_is_that_of_core(tmp_path):
    ratios = (0.5, 0.9925, 0.995, 1.0, 1.003, 1.02, 2.0)
    lines = [
        {
            "speedup": {"of": "graph", "median": m, "low": m * a, "high": m * b, "verdict": "cannot tell"}
            | more
        }
        for m in ratios
        for a in (0.0, 0.4, 0.98, 0.999, 1.0)
        for b in (1.0, 1.001, 1.03, 3.0)
        for more in ({}, {"same_within": 0.004}, {"converged": False}, {"converged": True})
    ]
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in [{"speedup": None}, *lines]))
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in database.LINE.items())
    source = f"read_json('{file}', format='newline_delimited', columns={{{columns}}})"
    with database.connect() as connection:
        query = f"SELECT {database.VERDICT}, {database.LOW}, {database.HIGH} FROM {source}"
        found = connection.execute(query).fetchall()
    read = [Speedup.from_json(line["speedup"]) for line in lines]
    assert found == [(None, None, None), *((s.verdict, s.low, s.high) for s in read)]


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({"kind": "bench"}, 60),
        ({"kind": "trace"}, 0),
        ({"status": "failed"}, 6),
        ({"op": "gemm"}, 15),
        ({"tag": "t1"}, 20),
        ({"tag": "t"}, 0),
        ({"text": "H200 attention"}, 0),
        ({"text": "rtx attention"}, 15),
        ({"text": "sweep 5"}, None),
        ({"text": "'; DROP TABLE runs"}, 0),
        ({"recorded": True}, 0),
        ({"recorded": False, "op": "add", "status": "done"}, 12),
    ],
)
def test_filters(runs, wanted, count):
    found, total = library.runs(**wanted, limit=100)
    assert total == len(found)
    by_hand = [
        r
        for r in (folder.read(p) for p in runs.iterdir() if (p / "run.json").exists())
        if _matches(r, **wanted)
    ]
    assert {r.id for r in found} == {r.id for r in by_hand}
    if "text" not in wanted:
        assert total == count


def _matches(run, kind=None, status=None, op=None, tag=None, text=None, recorded=None):
    words = " ".join(
        [run.id, run.title, *run.tags, run.status, run.reason or "", run.device_name, str(dict(run.spec))]
    ).lower()
    return (
        (kind is None or run.kind == kind)
        and (status is None or run.status == status)
        and (op is None or run.spec["op"] == op)
        and (tag is None or tag in run.tags)
        and (recorded is None or run.recorded == recorded)
        and all(w in words for w in (text or "").lower().split())
    )


@pytest.mark.slow
def test_records_of_many_runs_as_one_table(runs):
    table = library.records()
    assert len(table) == 60 * 20 and table["run"].nunique() == 60
    some = library.records(op="gemm", impl="sdpa", device_name="NVIDIA GeForce RTX 3090")
    assert len(some) == 15 * 4 and set(some["device_name"]) == {"NVIDIA GeForce RTX 3090"}
    path = library.find(some["run"].iloc[0])
    one = library.records(run=path.name, impl="sdpa")
    expected = [r for r in folder.records(path) if r.impl == "sdpa"]
    assert [json.loads(c) for c in one["case"]] == [dict(r.case) for r in expected]
    assert list(one["graph_ms"].dropna()) == [r.time_ms.graph.median for r in expected if r.time_ms]
    assert list(one["source_hash"]) == [r.source_hash for r in expected]
    assert list(library.records(op="none").columns) == list(table.columns) == list(one.columns)


@pytest.mark.slow
def test_changes_are_followed(runs):
    library.runs(), library.records()
    settle()
    first = library.runs(limit=1)[0][0]
    folder.write_notes(library.find(first.id), title="renamed", tags=["new"])
    assert [r.id for r in library.runs(tag="new")[0]] == [first.id]
    shutil.rmtree(library.find(library.runs(limit=1, offset=5)[0][0].id))
    assert library.runs()[1] == 59 and library.records()["run"].nunique() == 59
    make(runs / "more", 1, 3)
    (new,) = (runs / "more").iterdir()
    os.rename(new, runs / "20300101-000000-bench-ffffff")
    assert library.runs()[1] == 60
    assert len(library.records(run="20300101-000000-bench-ffffff")) == 3
    assert len(library.records()) == 59 * 20 + 3


def test_a_live_run_is_listed_as_it_stands(profiles):
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    writer.state("running")
    settle()
    assert library.runs()[0][0].status == "running" and len(library.records()) == 0
    writer.record(_record())
    writer.progress(1, 2, "half")
    writer.flush_progress(now=True)
    assert library.runs()[0][0].progress.message == "half" and len(library.records()) == 1
    settle()
    writer.record(_record())
    assert len(library.records()) == 2
    os.close(writer.lock)  # as if it were killed
    assert library.runs(status="interrupted")[1] == 1


def _record():
    from make_runs import record

    from fusescope.core.records import Record

    return Record.from_json(record("add", 1, "eager"))


def test_a_broken_run_harms_no_other(runs):
    names = sorted(p.name for p in runs.iterdir())
    (runs / names[0] / "run.json").write_text("{torn")
    (runs / names[1] / "run.json").write_text('{"schema": 99}')
    (runs / names[2] / "results.jsonl").write_text('{"op": "add", "impl": "x", "case": {}\n\0\0')
    (runs / names[3] / "results.jsonl").unlink()
    (runs / names[3] / "results.jsonl.gz").write_bytes(gzip.compress(b'{"op": "add"}\n' * 100)[:30])
    assert library.runs()[1] == 58
    broken = dict(library.broken())
    assert "torn or not JSON" in broken[names[0]] and "newer version" in broken[names[1]]
    assert library.records()["run"].nunique() == 56


@pytest.mark.slow
def test_deleting_or_tearing_the_index_costs_only_time(runs):
    before, _ = library.runs(limit=100)
    records = library.records()
    shutil.rmtree(runs / ".index")
    assert library.runs(limit=100)[0] == before
    for file in (runs / ".index").rglob("*.parquet"):
        file.write_bytes(b"PAR1 torn")
    assert library.runs(limit=100)[0] == before
    assert len(library.records()) == len(records)


@pytest.mark.slow
def test_many_small_batches_are_merged(runs, monkeypatch):
    monkeypatch.setattr(index_records, "BATCHES", 3)
    for n in range(6):
        make(runs / "more", 1, 2)
        (new,) = (runs / "more").iterdir()
        os.rename(new, runs / f"20300101-00000{n}-bench-ffffff")
        assert len(library.records()) == 60 * 20 + 2 * (n + 1)
    assert len(list((runs / ".index").rglob("records-*.parquet"))) <= 3


def test_finding_by_id_and_by_a_unique_beginning(runs):
    names = sorted(p.name for p in runs.iterdir() if not p.name.startswith("."))
    assert library.find(names[0]).name == names[0]
    (runs / "recorded").mkdir()
    os.rename(runs / names[0], runs / "recorded" / names[0])
    assert library.find(names[0]).parent.name == "recorded"
    assert library.runs(recorded=True)[0][0].id == names[0]
    for wrong in ("", "../x", "..", ".index", "nothing-like-it", "a\0b"):
        with pytest.raises(RunError, match=r"is not a run id|there is no run"):
            library.find(wrong)
    with pytest.raises(RunError, match="is the beginning of 60 runs"):
        library.find("20231114")


def test_without_duckdb_only_queries_over_all_runs_fail_and_say_so(runs, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(RunError, match="need duckdb: pip install duckdb"):
        library.runs()
    name = next(p.name for p in runs.iterdir())
    assert folder.read(library.find(name)).kind == "bench"
    assert transfer.export(name, tmp_path).exists()
