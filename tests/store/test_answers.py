"""A question finds the recorded case nearest to it, and every difference is said."""

import json
import time

import pytest
from make_runs import make, record

from fusescope.core import paths
from fusescope.store import answers, folder, library
from fusescope.store.answers import Question
from fusescope.store.index import runs as index_runs
from pages._ui.answer import nearest

BERT = {"batch": 16, "seq": 512, "heads": 12, "head_dim": 64}
H200 = "NVIDIA H200"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The recorded runs, with an index of this test's own."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("shipped")
    (home / "recorded").symlink_to(paths.ROOT / "profiles" / "recorded")
    patch.setenv("FUSESCOPE_PROFILES", str(home))
    yield
    patch.undo()


@pytest.mark.slow
def test_the_exact_case_is_found_with_nothing_that_differs(shipped):
    (found,) = answers.find(Question("attention", BERT | {"mask": "bigbird"}, "float16", H200), recorded=True)
    assert not found.differs and found.case["seq_k"] == 512 and found.device_name == H200
    rows = [r for r in folder.records(library.find(found.run)) if dict(r.case) == found.case]
    assert len({r.impl for r in rows if r.status == "ok"}) == found.implementations > 6


def test_of_a_model_with_padding(shipped):
    asked = Question("model:bert-base", {"batch": 16, "seq": 512, "lengths": "uniform"}, "float16", H200)
    (found,) = answers.find(asked, recorded=True)
    assert not found.differs and found.case["lengths"] == "uniform"


def test_what_differs_is_named(shipped):
    asked = Question("attention", BERT | {"batch": 8, "seq": 3000, "mask": "causal"}, "bfloat16", H200)
    (found,) = answers.find(asked, recorded=True)
    assert found.differs == {"seq": (3000, 4096), "dtype": ("bfloat16", "float16")}


def test_what_the_measured_case_does_not_have_differs(shipped):
    asked = BERT | {"causal": "no", "mask": "bigbird"}
    (found,) = answers.find(Question("attention_varlen", asked, "float16", H200), recorded=True)
    assert found.differs == {"mask": ("bigbird", None)}


def test_nearest_first_and_one_run_for_each_case(shipped):
    asked = Question("attention", BERT | {"mask": "bigbird"}, "float16", H200)
    found = answers.find(asked, most=50, recorded=True)
    assert len({(str(sorted(f.case.items())), f.dtype, f.device_name) for f in found}) == len(found)
    assert found[0].differs == {} and all(f.differs for f in found[1:])


def test_of_equally_near_cases_the_one_nearer_in_size_comes_first(shipped):
    """Twice the batch at twice the length is 8 times the attention, half of one and twice the other twice."""
    asked = Question("attention", BERT | {"batch": 8, "seq": 1024, "mask": "causal"}, "float16", H200)
    (found,) = answers.find(asked, recorded=True)
    sizes = found.case["batch"], found.case["seq"]
    assert sizes in ((4, 2048), (16, 512))


def test_an_option_that_a_case_leaves_out_has_its_default(profiles):
    """A measured case of four tokens a call, or of a paged cache, is not the plain one."""
    make(profiles, 1, 1)
    run = profiles / FIRST
    case = {"batch": 1, "heads": 8, "kv_heads": 8, "seq_max": 64, "head_dim": 64, "lengths": "full"}
    line = record("attention_decode", 3, "v1") | {"case": case | {"tokens": 4}}
    (run / "results.jsonl").write_text(json.dumps(line) + "\n")
    (found,) = answers.find(Question("attention_decode", case), recorded=False)
    assert found.differs == {"tokens": (1, 4)}


@pytest.mark.parametrize("case", [{}, {"rows": 1, "inputs": 4096, "outputs": 28672}])
def test_what_another_operator_leaves_out_is_not_asked_for(shipped, case):
    """Weights "as x" are what decoder layers leave out; a linear layer with 8-bit weights always has its."""
    found = answers.find(Question("linear_weight_only", case), recorded=True)
    assert found and not found[0].differs


def test_another_device_counts_more_than_any_size(shipped):
    asked = Question("attention", {"batch": 1, "seq": 2048, "mask": "bigbird"}, "float32", "Some GPU")
    found = answers.find(asked, most=100, recorded=True)
    assert {f.differs["device"][0] for f in found} == {"Some GPU"}


def test_a_case_far_from_what_is_asked_comes_after_a_near_one_of_another_device(profiles):
    """One row of 4096 × 4096 was answered by 128 rows of 768 × 2304, whose time was below its bound."""
    make(profiles, 1, 1)
    names = {H200: "20270101-000000-bench-000000", "NVIDIA H100": "20270101-000001-bench-000001"}
    _copies(profiles, dict.fromkeys(names.values(), 1))
    for (device, name), (rows, inputs, outputs) in zip(names.items(), ((128, 768, 2304), (1, 4096, 6144))):
        run = json.loads((profiles / name / "run.json").read_text())
        run["environment"]["device_name"] = device
        (profiles / name / "run.json").write_text(json.dumps(run))
        case = {"rows": rows, "inputs": inputs, "outputs": outputs, "activation": "none", "residual": "no"}
        (profiles / name / "results.jsonl").write_text(json.dumps(record("linear", 3, "v1") | {"case": case}))
    asked = Question("linear", {"rows": 1, "inputs": 4096, "outputs": 4096}, "float16", H200)
    (found,) = answers.find(asked, recorded=False)
    assert found.case["rows"] == 1 and found.device_name == "NVIDIA H100" and "device" in found.differs


def test_the_same_phase_on_another_device_comes_before_another_phase(shipped):
    """Llama 3 8B: decoding on an H200, its prompt on an H100 alone."""
    case = {"batch": 1, "seq": 2048, "phase": "prefill"}
    (found,) = answers.find(Question("model:llama3-8b", case, "float16", H200), recorded=True)
    assert found.case["phase"] == "prefill" and set(found.differs) == {"device"}


def test_without_any_record_nothing_is_found(shipped):
    assert answers.find(Question("model:llama2-7b", {"batch": 1})) == []


def test_layouts_over_several_devices_answer_no_question_on_a_model(shipped):
    ships = library.runs(kind="parallel", op="model:bert-base", recorded=True)[0]
    asked = Question("model:bert-base", dict(ships[0].spec["cases"][0]), "float16", ships[0].device_name)
    (found,) = answers.find(asked, recorded=True)
    assert found.run not in {run.id for run in ships} and found.differs


def _copies(home, run_ids_and_impls: dict[str, int]) -> None:
    """Runs of one case, oldest first, each with so many implementations."""
    for n, (name, count) in enumerate(run_ids_and_impls.items()):
        folder_ = home / name
        folder_.mkdir()
        run = json.loads((home / FIRST / "run.json").read_text()) | {"id": name, "created": 1.8e9 + n}
        (folder_ / "run.json").write_text(json.dumps(run))
        lines = [json.dumps(record("softmax", 3, f"v{k}_rows")) for k in range(1, count + 1)]
        (folder_ / "results.jsonl").write_text("\n".join(lines) + "\n")


FIRST = "20231114-221320-bench-000000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementations", "preferred"),
    [((8, 2), 0), ((8, 4), 1), ((2, 8), 1), ((8, 3, 2), 0), ((1, 1, 1), 2)],
)
def test_a_small_new_run_does_not_hide_a_large_one(profiles, implementations, preferred):
    make(profiles, 1, 1)
    names = [f"20270101-00000{n}-bench-00000{n}" for n in range(len(implementations))]
    _copies(profiles, dict(zip(names, implementations, strict=True)))
    (found,) = answers.find(Question("softmax", {"n": 3, "heads": 12}), recorded=False)
    assert found.run == names[preferred] and found.implementations == implementations[preferred]


def test_only_runs_that_measured_all_of_some_implementations(profiles):
    make(profiles, 1, 1)
    names = [f"20270101-00000{n}-bench-00000{n}" for n in range(2)]
    _copies(profiles, dict(zip(names, (8, 4), strict=True)))
    question = Question("softmax", {"n": 3, "heads": 12})
    found = [
        answers.find(question, impls=impls) for impls in (("v2_rows",), ("v2_rows", "v7_rows"), ("v9_rows",))
    ]
    assert [[f.run for f in each] for each in found] == [[names[1]], [names[0]], []]


def test_values_that_mean_the_same_do_not_differ(shipped):
    """A window that is typed is the mask of the record that left it at its default."""
    asked = Question("attention", BERT | {"mask": "sliding_window:left=64,right=64"}, "float16", H200)
    (plain,) = answers.find(asked, recorded=True)
    (found,) = answers.find(asked, recorded=True, meaning=nearest.written_out)
    assert "mask" in plain.differs and not found.differs and found.case["seq"] == 512


def test_another_question_reads_the_records_again_only_once_a_run_has_changed(profiles, monkeypatch):
    make(profiles, 3, 2)
    reads, records = [], library.records
    monkeypatch.setattr(library, "records", lambda **asked: reads.append(asked) or records(**asked))
    op = library.runs()[0][0].spec["op"]
    time.sleep(2 * index_runs.SETTLED_NS / 1e9)
    for rows in (8, 16, 32):
        assert answers.find(Question(op, {"rows": rows}))
    assert len(reads) == 1
    folder.write_notes(library.find(library.runs()[0][0].id), notes="seen again")
    assert answers.find(Question(op, {"rows": 8})) and len(reads) == 2
