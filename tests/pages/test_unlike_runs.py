"""What may be left out for a verdict: nothing that changes the workload; and a device is not code."""

import dataclasses

import pytest
import synthetic as s

from fusescope.analysis.compare import columns, conditions, source_code, workloads
from fusescope.analysis.compare.columns import Source
from fusescope.core.schema.cases import ABSENT

CASE = {"batch": 1, "heads": 12, "seq": 512, "head_dim": 64, "mask": "causal"}


def source(number, *cases, ms=1.0, impl="v1_x", hashed="a", device=None, **record):
    """A run of one implementation; cases by what differs from CASE (None: it lacks the key)."""
    run = s.run(f"2026112{number}-120000-bench-00000{number}")
    if device:
        run = dataclasses.replace(run, environment={**run.environment, "device_name": device})
    whole = [{k: v for k, v in (CASE | case).items() if v is not None} for case in cases]
    records = (s.ok(impl, ms, ms, case) for case in whole)
    return Source(run, tuple(dataclasses.replace(r, source_hash=hashed, **record) for r in records))


def judged(a, b, *left_out):
    (row, *_) = columns.compare([a, b], "run", left_out).rows
    return conditions.judge(a, b, left_out), row.cells[1]


@pytest.mark.parametrize("key", [*CASE, "page", "score", "anything"])
def test_a_key_with_another_value_is_another_workload_whatever_it_is(key):
    answer, cell = judged(source(0, {key: 8}), source(1, {key: 16}, ms=0.5), key)
    assert (
        answer.text
        == f"No: the workloads differ ({key} 8 against 16), so a ratio of their times is no speed-up."
    )
    assert cell.verdict is None and cell.difference.median == 2.0 and answer.control is None
    same, cell = judged(source(0, {key: 8}), source(1, {key: 8}, ms=0.5), key)
    assert same.yes and cell.unlike is None and cell.verdict.median == 2.0


@pytest.mark.parametrize(
    ("key", "default"), [*ABSENT.items(), ("kv_heads", 12), ("seq_k", 512), ("activation", "none")]
)
def test_a_key_that_an_older_run_lacks_is_its_default(key, default):
    left_out = () if key in ("kv_heads", "seq_k") else (key,)
    answer, cell = judged(source(0, {key: None}), source(1, {key: default}), *left_out)
    assert answer.yes and cell.unlike is None


def test_what_follows_a_key_left_out_differs_too():
    """Heads were left out: 32 query heads on 8 KV heads came beside 32 on 32, "1.69x faster"."""
    a, b = source(0, {"heads": 32, "kv_heads": 8}), source(1, {"heads": 32}, ms=0.6)
    answer, _ = judged(a, b, "heads")
    assert "kv_heads 8 against 32" in answer.text and not answer.yes
    assert "1 match with “heads” left out, but they are other workloads" in judged(a, b)[0].text
    answer, _ = judged(source(0, {"heads": 8}), source(1, {"heads": 12}), "heads")
    assert "(heads 8 against 12)" in answer.text, "kv_heads says the same"


def test_a_missing_key_without_a_default_may_be_anything():
    answer, _ = judged(source(0, {"mask": None}), source(1, {"mask": "causal"}), "mask")
    assert "mask unknown against causal" in answer.text


def test_in_part_of_the_rows_the_verdict_stands():
    masks = [{"mask": m} for m in ("full", "causal", "bigbird")]
    a, b = source(0, *masks), source(1, *(m | {"seq": 512 * (1 + n)} for n, m in enumerate(masks)))
    answer = conditions.judge(a, b, ["seq"])
    assert answer.yes and answer.control.rows == 1
    assert answer.text.startswith(
        "Yes in 1 of 3 rows; no in 2: the workloads differ (seq 512 against 1,024 and 1,536)."
    )
    found = columns.compare([a, b], "run", ["seq"])
    assert len(found.ratios(1)) == 1 and len(found.differences(1)) == 2
    assert found.rows[0].cells[1].verdict, "verdicts come first"


def test_devices_are_told_from_code_and_runs_of_one_device_belong_together():
    a, b, c = source(0, {}), source(1, {}, device="NVIDIA B200"), source(2, {}, device="NVIDIA B200")
    answers = [conditions.judge(a, other) for other in (b, c)]
    assert not any(one.yes for one in answers)
    assert conditions.groups([a, b, c], answers) == [[0], [1, 2]]
    cell = columns.compare([a, b]).rows[0].cells[1]
    assert cell.verdict is None and "NVIDIA B200" in cell.unlike.text and not cell.unlike.workload
    edited = source(1, {}, device="NVIDIA B200", hashed="b")
    assert "the hardware's or that of the code of v1_x" in conditions.judge(a, edited).text


def test_columns_by_what_changes_the_workload_have_no_verdict():
    found = columns.compare([source(0, {}, {"mask": "full"})], "mask")
    (row,) = found.rows
    assert row.cells[1].ratio and row.cells[1].unlike.workload == (("mask", "causal", "full"),)


def test_values_of_many_rows_are_named_once():
    found = [workloads.Unlike(None, (("heads", str(n), "8"),)) for n in (1, 2, 2, 3, 4, 5)]
    assert workloads.together([*found, None]).text == "other workload: heads 1, 2, 3 and 2 more against 8"


def test_own_code_without_a_hash_is_unknown_and_a_peer_counts_by_its_library():
    run = dataclasses.replace(s.run(), environment={"torch": "2.11.0"})
    same = {
        impl: source_code.compared("x", impl, (run, None), (run, None))
        for impl in ("fused-fp8", "sdpa", "a.py:f")
    }
    assert same == {"fused-fp8": "unknown", "sdpa": "same", "a.py:f": "unknown"}
