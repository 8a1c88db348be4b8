"""Comparing runs says first whether they may be compared, then what is faster; cases are matched by keys."""

import json
import math

import pytest
from make_runs import make

from fusescope.analysis.compare import columns, conditions
from fusescope.analysis.compare.columns import Source
from fusescope.analysis.compare.ratios import BETWEEN_RUNS
from fusescope.analysis.statistics import allowance
from fusescope.core.errors import RunError
from fusescope.store import compare, library


@pytest.fixture
def three(profiles):
    """Three runs of ``gemm`` on one GPU without a difference, and without a wrong record."""
    make(profiles, 7, 10)
    paths = [profiles / name for name in sorted(p.name for p in profiles.iterdir())[1:6:2]]
    for path in paths:
        rewrite(
            path, lambda r: r | {"op": "gemm", "source_hash": "s1" if r["impl"].startswith("v") else None}
        )
        edit(path, spec={"op": "gemm"}, environment={"torch_cuda": "13.0"})
    return paths


def edit(path, **changes):
    data = json.loads((path / "run.json").read_text())
    for part, values in changes.items():
        data[part] = data[part] | values if isinstance(values, dict) else values
    (path / "run.json").write_text(json.dumps(data))


def rewrite(path, change):
    lines = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
    (path / "results.jsonl").write_text("".join(json.dumps(change(r) or r) + "\n" for r in lines))


def faster(record, factor=0.5):
    """The record with times ``factor`` of one millisecond, known within 2 %."""
    if record["time_ms"]:
        t = {"median": factor, "low": 0.99 * factor, "high": 1.01 * factor, "n": 90, "converged": True}
        record["time_ms"] |= dict.fromkeys(("graph", "eager", "graph_cold", "eager_cold"), t)


def read(*paths):
    return [Source(*found) for found in compare.read(p.name for p in paths)]


def judge(*paths, left_out=()):
    return conditions.judge(*read(*paths), left_out)


def test_equal_runs_may_be_compared_and_differ_in_nothing(three):
    answer = judge(*three[:2])
    assert answer.yes and answer.cautions == () and answer.control == (0.0, 0.0, 9)
    assert answer.text == "Yes for 5 implementations (same source)."
    found = columns.compare(read(*three))
    assert found.columns == tuple(p.name for p in three) and len(found.rows) == 10
    ratios = [ratio for n in (1, 2) for _, ratio in found.ratios(n)]
    assert {r.median for r in ratios} == {1.0} and {r.verdict for r in ratios} <= {"same", "inconclusive"}
    assert found.ratios(0) == []


def test_a_run_is_named_once_and_an_unknown_one_refused(three):
    assert len(read(three[0], three[1], three[0])) == 2
    with pytest.raises(RunError, match="there is no run"):
        compare.read([three[0].name, "29990101-000000-bench-ffffff"])


def test_what_differs_in_source_is_named_and_the_rest_is_a_check(three):
    a, b, _ = three
    rewrite(b, lambda r: r | {"source_hash": "s2"} if r["impl"] == "v2_tiles" else r)
    answer = judge(a, b)
    assert answer.yes and answer.edited == ("v2_tiles",) and len(answer.same) == 4
    assert answer.text.endswith("v2_tiles differs in source: a difference there is the code's.")
    rewrite(b, lambda r: r | {"source_hash": None} if r["impl"] == "v1_rows" else r)
    assert judge(a, b).unknown == ("v1_rows",)


def test_implementations_without_a_recorded_source_are_a_caution(three):
    """Execution modes of a model record none; the answer named them, the cautions of a close look did not."""
    a, b, _ = three
    rewrite(b, lambda r: r | {"source_hash": None} if r["impl"] == "v1_rows" else r)
    answer = judge(a, b)
    said = "no source is recorded for v1_rows: whether a difference there is the code's is not known"
    assert answer.cautions[0] == said and "v1_rows" not in answer.text
    own = dict.fromkeys(("eager", "flex", "sdpa", "v1_rows", "v2_tiles"))
    for path in (a, b):
        edit(path, environment={"torch": None})
        rewrite(path, lambda r: r | {"source_hash": None})
    answer = judge(a, b)
    assert answer.text == "Unknown: no implementation that both timed has a recorded source."
    assert answer.unknown == tuple(own) and "for eager, flex, sdpa, v1_rows and 1 more:" in answer.cautions[0]


def test_peers_count_as_edited_where_torch_is_another(three):
    a, b, _ = three
    edit(b, environment={"torch": "2.13.0"})
    answer = judge(a, b)
    assert answer.edited == ("eager", "flex", "sdpa") and "torch: 2.11.0 against 2.13.0" in answer.cautions
    edit(b, environment={"torch": None})
    assert judge(a, b).unknown == ("eager", "flex", "sdpa")


def test_unchanged_implementations_that_differ_put_the_conditions_in_doubt(three):
    a, b, _ = three
    rewrite(b, lambda r: faster(r, 1.0))
    rewrite(a, lambda r: faster(r, 1.1))
    answer = judge(a, b)
    assert answer.control[0] == pytest.approx(0.1)
    assert answer.yes and answer.control.failed
    said = "Yes, but the check failed: equal sources are 10 % apart in the median, 10 % at most, in 9 rows, "
    assert answer.text.startswith(said) and answer.text.endswith("Same source: 5 implementations.")
    rewrite(a, lambda r: faster(r, 1.015))
    passed = judge(a, b).control
    assert not passed.failed and passed.text.startswith("Check passed: equal sources are 1.5 % apart")


def test_other_devices_and_no_common_case_mean_no(three):
    a, b, _ = three
    edit(b, environment={"device_name": "NVIDIA B200"})
    rewrite(a, lambda r: faster(r, 1.1))
    rewrite(b, lambda r: faster(r, 1.0))
    answer = judge(a, b)
    assert "the devices differ (NVIDIA GeForce RTX 3090 against NVIDIA B200)" in answer.text
    assert answer.control is None, "equal sources differ there by the hardware, which checks nothing"
    assert "Check" not in answer.text
    edit(b, environment={"device_name": "NVIDIA GeForce RTX 3090"})
    rewrite(b, lambda r: r | {"dtype": "float32"})
    answer = judge(a, b)
    assert not answer.yes and answer.text.startswith("No: the two runs have no case in common")
    assert "9 match with “dtype” left out, but they are other workloads: no verdict" in answer.text
    answer = judge(a, b, left_out=["dtype"])
    assert answer.text.startswith("No: the workloads differ (dtype float16 against float32)")
    rewrite(a, lambda r: r | {"case": r["case"] | {"m": 16}})
    rewrite(b, lambda r: r | {"case": r["case"] | {"m": 77, "beta": 1}})
    assert "no case in common that both timed (m 16 against 77)" in judge(a, b).text


def test_every_caution_is_a_sentence(three):
    a, b, _ = three
    edit(b, environment={"driver": None, "others_on_gpu": [{"pid": 1}]}, spec={"cache": "cold"})
    edit(b, status="cancelled")
    clocked = {"sm_mhz": 1700, "clock_difference": -0.031}
    rewrite(b, lambda r: r | {"conditions": clocked})
    for path, clock in ((a, 1980), (b, 1410)):
        line = {"case_key": "x", "impl": "y", "mode": "graph", "ms": [1], "state": [{"sm_mhz": clock}, None]}
        (path / "samples.jsonl").write_text(json.dumps(line) + "\n")
    edit(b, spec={"baseline": "eager"})
    said = judge(a, b).cautions
    for sentence in (
        "driver: 580.1 against unknown",
        "cache mode: unknown against cold",
        f"in 10 of 10 records of {b.name} the SM clock differs by up to 3.1 % from that of {b.name}'s own "
        "baseline, eager",
        f"other processes used the GPU during {b.name}",
        "SM clock (median): 1980 MHz against 1410 MHz",
        f"{b.name} is cancelled: its records may not be all there",
    ):
        assert sentence in said
    called = conditions.judge(*read(a, b), names=("A", "B")).cautions
    assert "B is cancelled: its records may not be all there" in called and b.name not in str(called)


def test_columns_tell_faster_slower_and_what_is_missing(three):
    a, b, c = three
    rewrite(b, faster)
    rewrite(c, lambda r: r | {"op": "gemm", "impl": "other"})
    found = columns.compare(read(a, b, c))
    ok = [row for row in found.rows if row.cells[0].status == row.cells[1].status == "ok"]
    assert len(ok) == 9 and {row.cells[1].ratio.verdict for row in ok if row.case["n"] % 7} == {"faster"}
    for row in ok:
        base, other = (cell.time for cell in row.cells[:2])
        ratio = row.cells[1].ratio
        assert ratio.median == base.median / other.median and row.mode == "graph"
        wider = math.exp(max(allowance(min(base.n, other.n)), BETWEEN_RUNS))
        assert ratio.low == pytest.approx(base.low / other.high / wider)
        assert ratio.high == pytest.approx(base.high / other.low * wider)
        assert row.cells[2].status == columns.MISSING
    backwards = columns.compare(read(b, a))
    assert {r.verdict for _, r in backwards.ratios(1)} == {"slower"}
    wrong = next(row for row in found.rows if row.cells[0].status == "wrong")
    assert wrong.mode is None and wrong.cells[1].ratio is None and wrong.cells[1].time is None


def test_between_two_runs_as_much_is_left_open_as_unchanged_code_differs(three):
    """Of tight medians 0.2 % was left open, and equal sources were "slower" though nothing had changed."""
    a, b, _ = three
    rewrite(a, lambda r: faster(r, 1.0))
    rewrite(b, lambda r: faster(r, 1.0))
    even = [r.verdict for _, r in columns.compare(read(a, b)).ratios(1)]
    assert set(even) == {"inconclusive"}, "nor are two runs ever the same within 1 %"
    rewrite(b, lambda r: faster(r, 0.955))
    assert {r.verdict for _, r in columns.compare(read(a, b)).ratios(1)} == {"inconclusive"}
    rewrite(b, lambda r: faster(r, 0.9))
    assert {r.verdict for _, r in columns.compare(read(a, b)).ratios(1)} == {"faster"}


def test_a_failed_check_leaves_its_own_size_open(three):
    a, b, _ = three
    slow = {"eager": 1.3, "v2_tiles": 1.25}
    rewrite(a, lambda r: faster(r, slow.get(r["impl"], 1.0)))
    rewrite(b, lambda r: faster(r, 1.0) or (r | {"source_hash": "s2"} if r["impl"] == "v2_tiles" else r))
    answer = judge(a, b)
    assert answer.control.failed and "less than 30 % is no verdict here" in answer.text
    for left_open, verdict in (({}, "faster"), ({b.name: answer.left_open}, "inconclusive")):
        rows = columns.compare(read(a, b), left_open=left_open).rows
        found = {row.cells[1].verdict.verdict for row in rows if row.impl == "v2_tiles" and row.mode}
        assert found == {verdict}


def test_what_changed_most_is_first(three):
    a, b, _ = three
    rewrite(b, lambda r: faster(r, 0.01 if r["impl"] == "flex" else 1.0))
    assert columns.compare(read(a, b)).rows[0].impl == "flex"


def test_keys_left_out_match_more_cases_and_never_several_of_one_run(three):
    a, b, _ = three
    rewrite(b, lambda r: r | {"case": r["case"] | {"bias": "none"}})
    sources = read(a, b)
    assert columns.compare(sources).ratios(1) == [] and columns.helpful(sources) == {"bias": (9, 9)}
    assert len(columns.compare(sources, left_out=["bias"]).ratios(1)) == 9
    several = columns.compare(sources, left_out=["bias", "n"])
    assert {c.status for row in several.rows for c in row.cells} == {columns.SEVERAL}
    assert columns.compare(sources, columns=[a.name] * 2).columns == (a.name,), "a column named twice is one"
    for wrong in ({"left_out": ["nothing"]}, {"by": "moon"}, {"columns": ["Z"]}):
        with pytest.raises(ValueError, match=r"cannot be left out|columns are by|there is no column"):
            columns.compare(sources, **wrong)


@pytest.mark.parametrize("by", columns.BY)
def test_columns_by_anything(three, by):
    a, b, c = three
    edit(b, environment={"git_commit": "b" * 40, "device_name": "NVIDIA B200"})
    rewrite(b, lambda r: r | {"dtype": "float32"})
    rewrite(c, lambda r: r | {"case": r["case"] | {"mask": "causal"}})
    sources = read(a, b, c)
    there = columns.values(sources, by)
    found = columns.compare(sources, by, columns=there[::-1])
    assert found.columns == tuple(there[::-1]) and all(len(r.cells) == len(there) for r in found.rows)
    expected = {"run": 3, "GPU": 2, "commit": 2, "dtype": 2, "mask": 2, "implementation": 5}
    assert len(there) == expected[by]


def test_within_one_run_the_paired_interval_counts(three):
    rewrite(three[0], lambda r: r | {"case": r["case"] | {"n": 1}})
    (source,) = read(three[0])
    source = Source(source.run, source.records[5:])
    found = columns.compare([source], "implementation", columns=["eager", "sdpa"])
    (row,) = found.rows
    assert row.cells[1].ratio == row.cells[1].record.speedup and row.impl is None
    found = columns.compare([source], "implementation", columns=["sdpa", "flex"])
    base, other = (cell.time for cell in found.rows[0].cells)
    assert found.rows[0].cells[1].ratio.low < base.low / other.high, "no pair was sampled"


def test_of_several_runs_in_one_column_the_newest_counts(three):
    a, _, c = three
    rewrite(c, faster)
    found = columns.compare(read(c, a), "GPU")
    assert {cell.run.id for row in found.rows for cell in row.cells} == {library.find(c.name).name}
