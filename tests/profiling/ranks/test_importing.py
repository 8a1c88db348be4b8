"""Traces of many ranks as one profile: figures of a made-up job, clocks of hosts, files that are refused,
and the verbs."""

import importlib
import json
import sys
from itertools import pairwise
from pathlib import Path

import made_up_ranks as job
import pyarrow.parquet as pq
import pytest

from fusescope.analysis.ranks import breakdown
from fusescope.core.errors import Cancelled, RunError
from fusescope.core.reporter import Collect
from fusescope.profiling.chrome import importer as single
from fusescope.profiling.ranks import choose, importer
from fusescope.store import library, profile

sys.path.append(str(Path(__file__).resolve().parents[1]))

from verb_tools import valid

import_kind = importlib.import_module("fusescope.jobs.kinds.import")


def imported(files, out: Path) -> tuple[dict, dict[str, list[dict]]]:
    """(summary, rows by table)."""

    def target(name):
        file = out / "artifacts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    summary = importer.load(files, target, lambda share, text: None)
    return summary, {p.stem: pq.read_table(p).to_pylist() for p in (out / "artifacts").glob("*.parquet")}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four ranks on two hosts, whose second clock is 3 ms ahead."""
    home = tmp_path_factory.mktemp("four")
    files = job.write(home / "traces", ranks=4, hosts=2, packed=True, clocks={2: 3000.0, 3: 3000.0})
    return files, *imported(files, home / "run"), home / "run"


def test_time_by_rank_is_what_the_job_did(four):
    _, summary, tables, _ = four
    assert [r["rank"] for r in tables["rank_time"]] == [0, 1, 2, 3] and summary["rows"]["ranks"] == 4
    for row in tables["rank_time"]:
        r, steps = row["rank"], 6
        assert row["overlapped_ns"] == 1000 * steps * job.HIDDEN
        assert row["compute_ns"] == 1000 * steps * (100 + 20 * r)
        assert row["exposed_ns"] == 1000 * steps * (20 * (3 - r) + job.TRANSFER - job.HIDDEN)
        assert sum(row[p] for p in breakdown.PARTS) == row["span_ns"]
        assert row["wait_ns"] == pytest.approx(1000 * steps * 20 * (3 - r), abs=2000)
    assert [r["last"] for r in tables["rank_time"]] == [0, 0, 0, 6]
    assert tables["rank_time"][3]["held_up_ns"] == pytest.approx(6 * 20_000, abs=2000)


def test_clocks_of_hosts_are_brought_together(four):
    _, summary, tables, _ = four
    first, second = summary["clocks"]
    assert (first["ranks"], second["ranks"]) == ([0, 1], [2, 3]) and second["collectives"] == 6
    assert second["offset_ns"] == pytest.approx(-3_000_000, abs=300)
    assert {c["skew_ns"] // 1000 for c in tables["collectives"]} <= {59, 60}
    assert all(c["plausible"] and c["waits"] and c["ranks"] == 4 for c in tables["collectives"])
    assert {c["last_rank"] for c in tables["collectives"]} == {3}
    assert {
        (e["overlapped_ns"], e["exposed_ns"] + e["overlapped_ns"] == e["dur_ns"])
        for e in tables["collective_ranks"]
    } == {(10_000, True)}


def test_the_path_runs_over_the_slowest_rank(four):
    _, summary, tables, _ = four
    path = tables["critical_path"]
    kinds = {s["rank"]: {t["kind"] for t in path if t["rank"] == s["rank"]} for s in path}
    assert "compute" in kinds[3] and not any("compute" in kinds.get(r, ()) for r in (0, 1, 2))
    assert all(a["ts_ns"] + a["dur_ns"] == b["ts_ns"] for a, b in pairwise(path))
    assert sum(s["share"] for s in summary["critical_path"]) == pytest.approx(1)


def test_each_rank_is_what_its_file_alone_would_be(four, tmp_path):
    files, _, _, run = four
    alone = single.load(files[2], lambda name: tmp_path / name)
    home = profile.rank_folder(run, 2)
    assert profile.summary(home) == alone
    for name in profile.names(home):
        assert profile.arrow(home, name).equals(pq.read_table(tmp_path / f"{name}.parquet")), name
    with pytest.raises(RunError, match="has no rank 9"):
        profile.rank_folder(run, 9)


@pytest.mark.parametrize("settings", [{"hosts": 0}, {"told": False}, {"info": False}])
def test_less_in_the_files_gives_the_same_times(settings, tmp_path):
    summary, tables = imported(job.write(tmp_path / "t", **settings), tmp_path / "run")
    assert [c["skew_ns"] for c in tables["collectives"]] == [20_000] * 6
    assert not any(c["offset_ns"] for c in summary["clocks"])


def test_a_step_that_one_rank_lacks_is_left_out_and_said(tmp_path):
    files = job.write(tmp_path / "t")
    events = job.events(1, 2, first=2)
    files[1].write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 1}}))
    summary, tables = imported(files, tmp_path / "run")
    assert len(tables["collectives"]) == 4 and any("not on every rank" in n for n in summary["notes"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f[1].write_text('{"traceEvents": [{"ph": "X", "na'), "job.rank1.json is truncated"),
        (lambda f: f[1].write_text('{"traceEvents": []}'), "holds no event that lasts"),
        (
            lambda f: f[1].write_text(
                json.dumps({"traceEvents": job.events(1, 2), "distributedInfo": {"rank": 0}})
            ),
            "job.rank1.json is named as rank 1, but its distributedInfo says rank 0",
        ),
    ],
)
def test_a_file_that_is_no_trace_of_its_rank_stops_the_import_in_one_sentence(change, says, tmp_path):
    files = job.write(tmp_path / "t")
    change(files)
    with pytest.raises(ValueError, match=says.replace(".", "[.]")) as error:
        imported(files, tmp_path / "run")
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)


def test_an_import_is_cancelled_while_it_reads_and_leaves_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(importer, "_SMALL", -1)
    closed = []
    real = importer.Process.close
    monkeypatch.setattr(importer.Process, "close", lambda p: (real(p), closed.append(p.process.poll())))
    reporter = Collect(tmp_path / "artifacts")
    spec = import_kind.validate({"file": str(job.write(tmp_path / "t")[0].parent)})
    calls = iter([False, False, True])
    monkeypatch.setattr(Collect, "check", lambda self: _cancelled(next(calls, True)))
    with pytest.raises(Cancelled):
        import_kind.run(spec, reporter)
    assert closed and None not in closed


def _cancelled(now: bool) -> None:
    if now:
        raise Cancelled


def broken(folder: Path, what: str) -> dict:
    """A spec of an import that is refused."""
    files = job.write(folder, info=what != "no rank")
    if what == "one":
        files[1].unlink()
    elif what == "twice":
        (folder / "copy.json").write_bytes(files[1].read_bytes())
    elif what == "other form":
        files[1].write_bytes(b"SQLite format 3\0")
    elif what == "no rank":
        files[0].rename(folder / "a.json")
        return {"file": str(folder), "files": [str(folder / "a.json"), str(files[1])]}
    elif what == "none":
        for file in files.values():
            file.unlink()
    elif what == "captured":
        return {"file": str(folder), "captured": "x"}
    return {"file": str(folder)}


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("one", "needs two traces that name their rank, not 1"),
        ("twice", "are both of rank 1"),
        ("other form", "is no Chrome trace (Nsight Systems export (.sqlite))"),
        ("no rank", "a.json names no rank"),
        ("none", "holds no Chrome trace"),
    ],
)
def test_what_is_no_job_is_refused_before_anything_starts(what, says, tmp_path):
    with pytest.raises(ValueError) as error:
        import_kind.validate(broken(tmp_path / "t", what))
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("trace_rank_3.json.gz", 3),
        ("rank-12.pt.trace.json", 12),
        ("worker0.1623143089861.pt.trace.json.gz", 0),
        ("RANK7/trace.json", 7),
        ("prank3.json", None),
        ("trace.json", None),
    ],
)
def test_ranks_in_names(name, rank, tmp_path):
    assert choose.of_name(tmp_path / name) == rank


def test_a_rank_is_believed_only_before_the_events(tmp_path):
    text = '{"traceEvents": [{"ph": "X", "name": "\\"distributedInfo\\": {\\"rank\\": 5}"}]}'
    (tmp_path / "a.json").write_text(text)
    assert choose.told(tmp_path / "a.json") is None
    (tmp_path / "b.json").write_text('{"distributedInfo": {"rank": -1}, "traceEvents": []}')
    assert choose.told(tmp_path / "b.json") is None


@pytest.mark.slow
def test_a_folder_becomes_a_run_and_the_verb_shows_it(home, call, tmp_path):
    job.write(tmp_path / "t", ranks=3)
    (tmp_path / "t" / "config.json").write_text("{}")
    code, out, err = call("import", tmp_path / "t", "--json")
    assert code == 0, err
    data = json.loads(out)
    valid("import.json", data)
    run = data["imported"][0]["run"]
    assert data["imported"][0]["form"] == "ranks" and any(
        "for want of a rank: config.json" in n for n in data["imported"][0]["summary"]["notes"]
    )
    assert (library.find(run) / "artifacts" / "ranks" / "1" / "artifacts" / "trace.json.gz").is_file()
    code, out, _ = call("ranks", run, "--json")
    assert code == 0
    valid("ranks.json", json.loads(out))
    for view in ("time", "collectives", "kernels", "idle", "path"):
        code, out, _ = call("ranks", run, "--view", view)
        assert code == 0 and out.startswith("Rank 2 holds the others up")
    code, out, _ = call("ranks", run, "--pair", "0,2", "--json")
    valid("ranks.json", json.loads(out))
    assert code == 0 and json.loads(out)["pair"]["kernels"][0]["difference_ns"] != 0
    assert call("ranks", run, "--pair", "2,0")[0] == 0
    for bad in ("0", "0,0", "0,7", "a,b"):
        code, _, err = call("ranks", run, "--pair", bad)
        assert code == 2 and "--pair takes two of the ranks 0, 1, 2" in err
    bundle = tmp_path / "run.fsrun.tar.gz"
    assert call("runs", "export", run, "--to", bundle)[0] == 0
    code, out, _ = call("import", bundle, "--json")
    assert code == 0 and call("ranks", json.loads(out)["imported"][0]["run"])[0] == 0
    code, _, err = call("import", "--ranks", tmp_path / "t" / "job.rank0.json")
    assert code == 2 and "--ranks takes a folder" in err


def test_a_summary_whose_ranks_are_none_is_said(four, tmp_path):
    (tmp_path / "artifacts").mkdir()
    whole = profile.summary(four[3])
    for ranks in ("x", [1], [{"rank": "0"}]):
        (tmp_path / "artifacts" / "summary.json").write_text(json.dumps(whole | {"ranks": ranks}))
        with pytest.raises(RunError, match="is damaged: its ranks"):
            profile.summary(tmp_path)
