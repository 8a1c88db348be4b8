"""From codes to records, in this process: groups, failures, segments' times, sweep and search with what
they repeat."""

import json
import shutil
from collections import Counter

import pytest
import torch

from fusescope.core.errors import Cancelled
from fusescope.core.records import Record
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import search as search_kind
from fusescope.jobs.kinds import traverse as traverse_kind
from fusescope.measure.checking import watch
from fusescope.search import encoding, runtime, sessions
from fusescope.search.measuring import baselines, evaluate, group, loader, segment_times
from fusescope.search.scheme import codegen
from fusescope.search.scheme.setting import FINAL, OP, SEGMENT, Setting
from fusescope.search.sweeps import exhaustive, search_job
from fusescope.store import folder

pytestmark = pytest.mark.slow

TINY = {"batch": 1, "seq": 16, "heads": 2, "head_dim": 32, "dtype": "float32", "compiler": "none"}
CODES = encoding.distinct(["21845", "49151", "32768", "16022"])


@pytest.fixture(scope="module", autouse=True)
def quick():
    """One thread, and no more rounds than a verdict needs."""
    before, patch = torch.get_num_threads(), pytest.MonkeyPatch()
    torch.set_num_threads(1)
    patch.setattr(evaluate, "BASELINE_S", 0.02)
    patch.setattr(evaluate, "FINAL_S", 0.02)
    patch.setattr(watch, "WANTED", 5)  # tests/measure holds what looking at 200 calls finds
    yield
    patch.undo()
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def measured():
    reporter = Collect()
    e = evaluate.Evaluator(Setting(**TINY, mask="causal"), reporter, budget_s=0.002)
    e.prepare(lambda text: None)
    e.baselines(lambda text: None)
    found = e.evaluate(CODES)
    segment_times.measure(e, CODES, lambda text: None)
    return e, reporter, found


def test_every_code_has_a_record(measured):
    e, reporter, found = measured
    records = {r.impl: r for r in reporter.records if r.op == OP}
    assert set(records) == {*CODES, *baselines.BASELINES} and len(
        [r for r in reporter.records if r.op == OP]
    ) == len(records)
    for code in CODES:
        r = records[code]
        assert (
            r.status == "ok"
            and found[code] == r.time_ms.eager.median
            and r.speedup.of == "eager"
            and r.tflops.executed > 0
        )
        assert r.case == e.setting.case() and r.case_key == e.key and r.accuracy.reference == "float64"
        assert (
            r.accuracy.max_abs < 1e-5
            and r.backend == codegen.words(code, e.setting)
            and len(r.source_hash) == 16
        )
        assert Record.from_json(json.loads(json.dumps(r.to_json()))) == r
    assert len({records[c].source_hash for c in CODES}) == len(CODES)
    assert records["compile"].status == "unsupported" and "compiler none" in records["compile"].reason
    assert (
        records["hand_fused"].status == records["unfused"].status == "ok"
        and records["unfused"].speedup.verdict == "same"
    )
    raw = {(impl, mode): len(ms) for _, impl, mode, ms, _ in reporter.raw}
    assert all(raw[c, "eager"] == records[c].time_ms.eager.n for c in CODES)


def test_segments_are_shared_and_timed_once(measured):
    e, reporter, _ = measured
    own = [r for r in reporter.records if r.op == SEGMENT]
    wanted = {(s.operators[0], s.operators[-1]) for c in CODES for s in codegen.plan(c, e.setting)}
    assert {(r.case["first"], r.case["last"]) for r in own} == wanted and len(own) == len(wanted)
    assert all(r.status == "ok" and r.time_ms.eager.median > 0 for r in own)
    functions = dict(e.segments.functions)
    before = len(reporter.records)
    segment_times.measure(e, CODES, lambda text: None)
    e.loader.load(CODES, lambda text: None)
    assert len(reporter.records) == before and e.segments.functions == functions


def test_final_gives_paired_speedups(measured):
    e, reporter, _ = measured
    found = e.final(CODES[:1], lambda text: None)
    assert set(found) == {CODES[0], "unfused", "hand_fused"} and found[CODES[0]]["ms"] > 0
    assert set(found[CODES[0]]["speedups"]) == {"unfused", "hand_fused"}
    assert found["unfused"]["speedups"]["unfused"].median == 1.0
    assert Counter(r.op for r in reporter.records)[FINAL] == 1 + len(baselines.BASELINES)


def test_a_wrong_scheme_has_no_time(monkeypatch):
    """A segment that is wrong is found before anything is timed, and every scheme that has it says so."""
    right = dict(codegen._TEXT)
    monkeypatch.setattr(
        codegen,
        "_TEXT",
        right | {8: ("attention_product = 1.1 * torch.nn.functional.linear(merged, attention_weight)",)},
    )
    reporter = Collect()
    e = evaluate.Evaluator(Setting(**TINY), reporter, budget_s=0.002)
    e.prepare(lambda text: None)
    found = e.evaluate(["0101010101010101", encoding.encode(True, {1, 7, 9})])
    r = next(r for r in reporter.records if r.impl == "0101010101010101")
    assert (
        r.status == "wrong"
        and r.reason.startswith("segment 8 (torch): attention_product: ")
        and r.time_ms is None
    )
    assert found["0101010101010101"] is None and found[encoding.encode(True, {1, 7, 9})] > 0, (
        "8-9 is a kernel of ours"
    )
    monkeypatch.setattr(codegen, "_TEXT", right | {3: ("scores = this_is_not_defined",)})
    reporter = Collect()
    e = evaluate.Evaluator(Setting(**TINY), reporter, budget_s=0.002)
    e.prepare(lambda text: None)
    e.evaluate(["0101010101010101"])
    assert (
        reporter.records[-1].status == "error"
        and "segment 3 (torch): NameError" in reporter.records[-1].reason
    )


def test_a_segment_that_crashed_is_not_tried_again():
    reporter = Collect()
    e = evaluate.Evaluator(Setting(**TINY), reporter, budget_s=0.002)
    e.prepare(lambda text: None)
    s = codegen.segment(range(3, 5), False, e.setting)
    reporter.record(
        Record(SEGMENT, s.how, e.loader.case(s), "float32", "cpu", "crashed", "it ended by SIGSEGV")
    )
    code = encoding.encode(False, set(range(14)) - {3})
    assert e.evaluate([code]) == {code: None}
    assert reporter.records[-1].status == "crashed" and "3-4" in reporter.records[-1].reason


def test_what_compiles_in_parallel_is_loaded_as_it_is_done(monkeypatch):
    """The compiling processes are told of each missing segment once; one that ended its process is never
    loaded here."""
    asked = []

    def compile_all(setting, wanted, number, check):
        asked.append([s.span for s in wanted])
        yield from (
            (s, "the process that compiled it ended with exit code -11" if s.span == "9-14" else None)
            for s in wanted
        )

    monkeypatch.setattr(loader.compile_ahead, "compile_all", compile_all)
    monkeypatch.setattr(loader.compile_ahead, "processes", lambda setting, count, free: min(count, 3))
    monkeypatch.setattr(runtime, "compiled", lambda function: function)
    reporter = Collect()
    e = evaluate.Evaluator(Setting(**TINY | {"compiler": "inductor"}), reporter, budget_s=0.002)
    e.prepare(lambda text: None)
    good, bad = encoding.encode(True, {1, 7, 10}), encoding.encode(True, {1, 7, 8})
    found = e.evaluate([good, bad])
    assert (
        [sorted(a) for a in asked] == [["11-14", "8-10", "9-14"]] and found[good] > 0 and found[bad] is None
    )
    r = reporter.records[-1]
    assert (r.impl, r.status) == (bad, "crashed") and r.reason.startswith(
        "segment 9-14 (inductor): the process that compiled it"
    )


class _Stopping(Collect):
    """A reporter whose job is stopped after so many records of schemes."""

    left = 10**9

    def record(self, record):
        super().record(record)
        if record.op == OP and record.impl not in baselines.BASELINES:
            self.left -= 1

    def check(self):
        if self.left <= 0:
            raise Cancelled


def test_a_sweep_goes_on_where_it_was():
    spec = traverse_kind.validate(
        TINY | {"ranges": [["32768", "32900"]], "limit": 14, "budget_s": 0.002, "segments": False}
    )
    reporter = _Stopping()
    reporter.left = 5
    with pytest.raises(Cancelled):
        exhaustive.run(spec, reporter)
    first = [r.impl for r in reporter.records]
    reporter.left = 10**9
    exhaustive.run(spec, reporter)
    everything = [r.impl for r in reporter.records if r.op == OP]
    assert (
        len(everything) == len(set(everything)) == 14 + len(baselines.BASELINES)
        and everything[: len(first)] == first
    )
    assert set(everything) - set(baselines.BASELINES) == set(exhaustive.codes([[32768, 32900]], 14, 0))
    done, total, message, _ = reporter.steps[-1]
    assert done == total == 14 and message.startswith("best so far 1")
    assert any(eta for *_, eta in reporter.steps)


def test_a_further_session_measures_the_rest(profiles):
    """Two runs, as of two machines of one kind: no code twice, and together they are one landscape."""
    few = TINY | {"ranges": [[32768, 32900]], "limit": 3, "budget_s": 0.002, "segments": False}
    first = folder.Writer(folder.create("traverse", traverse_kind.validate(few)))
    exhaustive.run(traverse_kind.validate(few), first)
    first.close()
    more = traverse_kind.validate(few | {"limit": 7, "after": first.path.name})
    second = folder.Writer(folder.create("traverse", more))
    exhaustive.run(more, second)
    second.close()
    one, other = (
        {r.impl for r in folder.records(w.path) if r.op == OP} - set(baselines.BASELINES)
        for w in (first, second)
    )
    assert len(one) == 3 and len(other) == 4 and not one & other
    both = sessions.records(second.path.name)
    assert {r.impl for r in both if r.op == OP} == one | other | set(baselines.BASELINES)
    truth, setting = sessions.times(second.path.name)
    assert set(truth) == one | other and setting == Setting(**TINY)
    with pytest.raises(ValueError, match="goes on after one of the same"):
        traverse_kind.validate(few | {"seq": 32, "after": first.path.name})
    with pytest.raises(ValueError, match="times of one device are compared"):
        sessions.earlier(first.path.name, "NVIDIA H200")
    shutil.rmtree(first.path)
    assert {r.impl for r in sessions.records(second.path.name) if r.op == OP} >= other


def test_calls_settle_before_they_are_sampled():
    """Slow at first, then quick: all are called until no round is faster, and never beyond the limit."""
    now, calls = [0.0], []

    def call(times):
        def one():
            calls.append(1)
            now[0] += times.pop(0) if len(times) > 1 else times[0]

        return one

    group.settle([call([0.1, 0.05, 0.01]), call([0.001])], lambda: now[0])
    assert len(calls) == 2 * 6, "three rounds that get faster, three that do not"
    calls.clear()
    group.settle([call([1.0 - 0.1 * i for i in range(9)])], lambda: now[0])
    assert len(calls) == 3, "2 s are over"
    group.settle([], lambda: now[0])


def test_which_codes_a_sweep_takes():
    everything = exhaustive.codes(None, None, 0)
    assert len(everything) == len(set(everything)) == 128 + 8192 and all(
        c == encoding.canonical(c) for c in everything
    )
    assert not any({0, 1} <= set(p) for c in everything if c[0] == "0" for p in encoding.parts(c)), (
        "0 and 1 stay apart"
    )
    some = exhaustive.codes(None, 500, 0)
    assert (
        len(some) == len(set(some)) == 500
        and sum(c[0] == "1" for c in some) == 128
        and some == exhaustive.codes(None, 500, 0)
    )
    assert sum(c[0] == "1" for c in some[:100]) > 10, "a fair mixture from the start"
    assert (
        some != exhaustive.codes(None, 500, 1) and len(exhaustive.codes([[0, 65535]], None, 0)) == 128 + 16384
    )
    assert len(exhaustive.codes([[0, 5], [65530, 65535]], 3, 0)) == 3


def test_a_search_finds_explains_and_goes_on(tmp_path):
    spec = search_kind.validate(TINY | {"strategy": "additive", "evaluations": 20, "budget_s": 0.002})
    reporter = Collect(tmp_path)
    search_job.run(spec, reporter)
    data = json.loads((tmp_path / "search.json").read_text())
    evaluated = [r.impl for r in reporter.records if r.op == OP and r.impl not in baselines.BASELINES]
    assert [s["code"] for s in data["history"]] == evaluated and len(set(evaluated)) == 20
    assert data["candidates"] == 128 + 8192 and data["history"][-1]["best_ms"] == min(
        s["ms"] for s in data["history"]
    )
    assert (
        set(data["result"]["speedups"]) == {"unfused", "hand_fused"}
        and len(data["boundaries"]) == 15
        and data["segments"]
    )
    assert (tmp_path / "generated" / f"{data['result']['code']}.py").is_file()
    assert len((tmp_path / "pairs.tsv").read_text().splitlines()) == 20


def test_a_search_begun_again_repeats_no_code(profiles, monkeypatch):
    spec = search_kind.validate(
        TINY | {"strategy": "additive", "evaluations": 32, "budget_s": 0.002, "ranges": [[32768, 49151]]}
    )
    whole, batches = evaluate.Evaluator.evaluate, []

    def evaluate_some(self, codes, say):
        if len(batches) == 3:
            raise Cancelled
        batches.append(list(codes))
        return whole(self, codes, say)

    monkeypatch.setattr(evaluate.Evaluator, "evaluate", evaluate_some)
    writer = folder.Writer(folder.create("search", spec))
    with pytest.raises(Cancelled):
        search_job.run(spec, writer)
    assert json.loads((writer.path / "artifacts" / "search.json").read_text())["result"] is None
    monkeypatch.setattr(evaluate.Evaluator, "evaluate", whole)
    search_job.run(spec, writer)
    writer.close()
    impls = [r.impl for r in folder.records(writer.path) if r.op == OP]
    assert len(impls) == len(set(impls)) == 32 + len(baselines.BASELINES)
    history = [
        s["code"] for s in json.loads((writer.path / "artifacts" / "search.json").read_text())["history"]
    ]
    assert history[:24] == [c for b in batches for c in b] and sorted(history) == sorted(
        set(impls) - set(baselines.BASELINES)
    )


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        (traverse_kind, {"ranges": [[5, 3]]}, "from the smaller value to the larger one, not from 5 to 3"),
        (traverse_kind, {"ranges": [["011", "3"]]}, "a code is exactly 16 characters"),
        (traverse_kind, {"ranges": []}, "ranges must be a list"),
        (traverse_kind, {"limit": 0}, "limit must be an integer of at least 1, not 0"),
        (traverse_kind, {"budget_s": -1}, "budget_s must be a number above 0"),
        (traverse_kind, {"after": ["x"]}, "after must be a text"),
        (traverse_kind, {"steps": 1}, "this job takes batch, seq"),
        (traverse_kind, {"device": "cuda:7"}, "there is no device 'cuda:7' here"),
        (search_kind, {"strategy": "greedy"}, "strategy must be guided, "),
        (search_kind, {"evaluations": 1.5}, "evaluations must be an integer"),
        (search_kind, {"replay": ["x"]}, "replay must be a text"),
    ],
)
def test_bad_specs(kind, change, says):
    with pytest.raises((ValueError, TypeError), match=says):
        kind.validate(TINY | change)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "mask"), [("float16", "full"), ("bfloat16", "bigbird"), ("float32", "full")]
)
def test_schemes_on_the_gpu(dtype, mask):
    """Compiled segments, our kernels, graphs that share memory: right, and timed as graphs."""
    reporter = Collect()
    e = evaluate.Evaluator(
        Setting(batch=2, seq=128, heads=4, head_dim=64, dtype=dtype, device="cuda:0", mask=mask), reporter
    )
    e.prepare(lambda text: None)
    e.baselines(lambda text: None)
    cut = [
        encoding.encode(True, {1, 7, 9, 11}),
        encoding.encode(False, {2, 4, 6, 9, 12}),
    ]  # enough to compile in parallel
    found = e.evaluate([baselines.HAND_FUSED, "0111111111111111", "0101010101010101", *cut])
    segment_times.measure(e, found, lambda text: None)
    assert all(found.values()), [(r.impl, r.reason) for r in reporter.records if r.status != "ok"]
    assert {r.status for r in reporter.records} == {"ok"}, [
        (r.op, r.impl, r.reason) for r in reporter.records if r.status != "ok"
    ]
    assert all(r.main == "graph" for r in reporter.records)


@pytest.mark.gpu
def test_a_sweep_on_the_gpu():
    """Several groups: graphs as long as the first ones say, one pool for all; every scheme right."""
    spec = traverse_kind.validate(
        {"batch": 1, "seq": 128, "dtype": "float16", "device": "cuda:0", "limit": 20}
    )
    reporter = Collect()
    exhaustive.run(spec, reporter)
    failed = [(r.op, r.impl, r.case, r.reason) for r in reporter.records if r.status != "ok"]
    assert not failed and sum(r.op == OP for r in reporter.records) == 20 + len(baselines.BASELINES)
    n = len(reporter.records)
    exhaustive.run(spec, reporter)
    assert len(reporter.records) == n
