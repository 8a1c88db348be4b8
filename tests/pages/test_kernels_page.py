"""The Kernels page as a form: what its widgets ask for is what is submitted; what cannot run is said before
it is."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import folders
import pytest
import synthetic
from drawn_page import calm, figures, query, said, widget

from fusescope import ops
from fusescope.core import command, paths
from fusescope.jobs import submit
from pages._ui.answer import form_query


@pytest.fixture
def asked(monkeypatch, profiles):
    """What the page submits, in order; each submission is a finished run folder."""
    found = []

    def stand_in(kind, spec, title=""):
        found.append((kind, submit.validate(kind, spec)))
        run = synthetic.run(
            f"20261120-15{len(found):02d}00-{kind}-00000{len(found)}", kind=kind, spec=found[-1][1]
        )
        folders.write(profiles, run, [], samples=False)
        return run.id

    monkeypatch.setattr(submit, "submit", stand_in)
    return found


def press(at, label):
    widget(at.button, label).click()
    return calm(at.run())


def test_what_is_chosen_is_what_is_asked(draw, asked):
    at = draw(
        "kernels",
        mask="sliding_window:left=16,right=0",
        batch="2",
        seq="100",
        heads="4",
        head_dim="32",
        impl="eager,cpu",
        cache="warm",
    )
    press(at, "Run")
    [(kind, spec)] = asked
    case = {
        "batch": 2,
        "heads": 4,
        "kv_heads": 4,
        "seq": 100,
        "seq_k": 100,
        "head_dim": 32,
        "mask": "sliding_window:left=16,right=0",
        "bias": "none",
    }
    assert kind == "bench" and spec["cases"] == [case] and spec["impls"] == ["eager", "cpu"]
    assert (spec["baseline"], spec["cache"], spec["device"], spec["dtype"]) == (
        "eager",
        "warm",
        "cpu",
        "float32",
    )
    assert query(at)["run"] == "20261120-150100-bench-000001" and query(at)["seq"] == "100"


def test_the_url_restores_everything(draw, asked):
    first = draw("kernels", op="softmax")
    names = [p.name for p in ops.load("softmax").PARAMETERS]
    widget(first.text_input, f"{names[0]}, typed").set_value("33")
    calm(first.run())
    again = draw("kernels", **query(first))
    assert query(again) == query(first) and widget(again.text_input, f"{names[0]}, typed").value == "33"


def test_slider_and_box_follow_each_other(draw):
    at = draw("kernels")
    widget(at.text_input, "sequence, typed").set_value("777")
    calm(at.run())
    assert widget(at.select_slider, "sequence").value == 777
    widget(at.select_slider, "sequence").set_value(1024)
    calm(at.run())
    assert widget(at.text_input, "sequence, typed").value == "1024" and query(at)["seq"] == "1024"


def test_a_sweep_is_one_run_over_its_values_in_order(draw, asked):
    at = draw("kernels", sweep="seq", seqs="256,64,100", impl="eager,sdpa")
    assert re.search(r"Run takes about .* here, on .+: 3 cases × 2 implementations", said(at.caption))
    press(at, "Run")
    assert (
        [c["seq"] for c in asked[0][1]["cases"]]
        == [64, 100, 256]
        == [c["seq_k"] for c in asked[0][1]["cases"]]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"head_dim": "60"}, "head_dim must be a multiple of 8"),
        ({"kv_heads": "5"}, "heads must be a multiple of kv_heads"),
        ({"mask": "padding:lengths=3+5", "batch": "1"}, "sequences"),
        ({"own": "/nix/nowhere.py:f"}, "no file"),
        ({"own": "nowhere.py:f"}, f"no file nowhere.py in {Path.cwd()}"),
        ({"own": "words"}, "file.py:function"),
        ({"sweep": "seq", "seqs": "0"}, "must be an integer from"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_run_waits(draw, wrong, sentence):
    at = draw("kernels", **wrong)
    assert sentence.lower() in (said(at.error) + said(at.warning)).lower()
    if at.error:
        assert widget(at.button, "Run").disabled and len(at.error) == 1


@pytest.mark.long
def test_every_operator_has_a_form_that_can_be_run(draw, asked):
    for op in ops.names():
        press(draw("kernels", op=op), "Run")
    assert [spec["op"] for _, spec in asked] == ops.names()


@pytest.mark.long
def test_changing_the_operator_keeps_neither_its_cases_nor_its_mistakes(draw):
    at = draw("kernels", batch="4", mask="causal")
    for op in ops.names():
        widget(at.selectbox, "operator").set_value(op)
        calm(at.run())
        assert not at.error and not at.warning, (op, said(at.error), said(at.warning))


def test_unavailable_implementations_are_listed_with_the_reason(draw):
    at = draw("kernels")
    assert "is a CUDA kernel; the device is cpu" in said(at.markdown)


def test_an_own_function_joins_the_comparison(draw, asked, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def fast(q, k, v, mask=None, **kw):\n    return q\n")
    at = draw("kernels", own=f"{mine}:fast", impl=f"eager,{mine}:fast")
    press(at, "Use it")
    press(at, "Run")
    assert asked[0][1]["impls"] == ["eager", f"{mine}:fast"]


def test_an_edited_kernel_is_said_and_one_click_measures_the_same_again(
    draw, asked, profiles, tmp_path, monkeypatch
):
    shutil.copytree(paths.ROOT / "cuda", tmp_path / "cuda")
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path / "cuda"))
    spec = submit.validate(
        "bench", {"op": "add", "impls": ["eager", "cpu"], "cases": [{"n": 1000}], "baseline": "eager"}
    )
    record = dataclasses.replace(
        synthetic.ok("cpu", 1, 2, spec["cases"][0], "cpu", ops.describe("add", "cpu").source_hash),
        op="add",
        dtype="float32",
    )
    run = synthetic.run(spec=spec)
    folders.write(profiles, run, [record])
    assert "changed on disk" not in said(draw("kernels", op="add", run=run.id).info)
    source = next((tmp_path / "cuda" / "add").glob("cpu*.cpp"))
    source.write_text(source.read_text() + "\n// faster now\n")
    at = draw("kernels", op="add", run=run.id)
    assert "cpu changed on disk since this run" in said(at.info).replace("*", "")
    press(at, "Rebuild and re-run")
    assert asked == [("bench", spec)]
    assert query(at)["before"] == run.id


def test_new_against_old_after_an_edit(draw, profiles):
    old, new = (synthetic.run(f"20261120-1{n}0000-bench-00000{n}", finished=1.79e9 + n) for n in (1, 2))
    folders.write(profiles, old, [synthetic.ok("v1_x", 1.0, 1, synthetic.case(), source_hash="a" * 16)])
    folders.write(profiles, new, [synthetic.ok("v1_x", 0.5, 1, synthetic.case(), source_hash="b" * 16)])
    at = draw("kernels", run=new.id, before=old.id)
    figures = json.dumps([json.loads(c.proto.spec) for c in at.get("plotly_chart")])
    assert "after vs before the edit" in figures and "v1_x now" in figures


@pytest.mark.parametrize("kind", ["trace", "sanitize"])
def test_trace_and_sanitizer_are_asked_for_one_case(draw, asked, profiles, kind):
    case = ops.load("add").validate({"n": 1000})
    record = dataclasses.replace(synthetic.ok("cpu", 1, 2, case, "cpu"), op="add", dtype="float32")
    spec = submit.validate(
        "bench", {"op": "add", "impls": ["eager", "cpu"], "cases": [case], "baseline": "eager"}
    )
    run = synthetic.run(spec=spec)
    folders.write(profiles, run, [record])
    at = draw("kernels", op="add", run=run.id, view="Trace")
    if kind == "sanitize":
        assert widget(at.button, "Run compute-sanitizer").disabled and "needs a CUDA device" in said(
            at.caption
        )
        return
    press(at, "Collect Chrome trace")
    assert asked[0][0] == "trace" and asked[0][1]["impl"] == "cpu" and asked[0][1]["case"] == case


def test_the_command_line_of_a_run_asks_for_the_same_cases():
    text = command.bench(
        synthetic.run().spec | {"cache": "both", "cases": [synthetic.case(n) for n in (512, 1024)]}
    )
    assert (
        "--seq 512,1024" in text
        and "--mask bigbird" in text
        and "--seq-k" not in text
        and "--case" not in text
    )
    odd = [synthetic.case(512), synthetic.case(1024, batch=2)]  # no product of lists
    assert command.bench(synthetic.run().spec | {"cases": odd}).count("--case") == 2
    assert "--case n=1000" in command.bench(
        {"op": "add", "cases": [{"n": 1000}], "impls": ["eager"], "baseline": "eager"}
    )


def test_a_second_click_starts_nothing(draw, asked, monkeypatch):
    at = press(draw("kernels", op="add"), "Run")
    from pages._ui.app import run_data

    monkeypatch.setattr(
        run_data,
        "read",
        lambda run_id, real=run_data.read: dataclasses.replace(real(run_id), status="running"),
    )
    press(at, "Run")
    assert len(asked) == 1
    widget(at.text_input, "n, typed").set_value("12345")
    calm(at.run())
    press(at, "Run")
    assert len(asked) == 2


@pytest.mark.slow
def test_several_devices_are_picked_once_for_all_pages(draw, monkeypatch):
    from fusescope.core.machine import environment

    facts = {
        "cuda:0": ("NVIDIA GeForce RTX 2060", "sm_75"),
        "cuda:1": ("NVIDIA H200", "sm_90a"),
        "cpu": ("a CPU", None),
    }
    real = environment.collect
    monkeypatch.setattr(environment, "devices", lambda: list(facts))
    monkeypatch.setattr(
        environment,
        "collect",
        lambda d="cpu": real("cpu") | {"device": d, "device_name": facts[d][0], "arch": facts[d][1]},
    )
    monkeypatch.setattr(environment, "device_name", lambda d: facts[d][0])
    at = draw("kernels", device="cuda:1")
    assert (
        "NVIDIA H200" in "".join(e.proto.body for e in at.sidebar.get("html"))
        and query(at)["device"] == "cuda:1"
    )
    picker = widget(at.sidebar.selectbox, "Device")
    picker.set_value("cuda:0")
    calm(at.run())
    assert "device" not in query(at) and widget(at.selectbox, "dtype").value == "float16"
    at.switch_page("pages/build.py")
    assert widget(calm(at.run()).sidebar.selectbox, "Device").value == "cuda:0"


def test_a_throttled_gpu_is_said_by_its_reasons(monkeypatch):
    from fusescope.core.machine import nvml
    from pages._ui.app import device

    assert device.throttled(None) == device.throttled("GPU-1") == []
    monkeypatch.setattr(nvml.Reader, "__init__", lambda self, uuid: None)
    monkeypatch.setattr(nvml.Reader, "reasons", lambda self: 0x1 | 0x4 | 0x40)
    assert device.throttled("GPU-1") == ["hardware thermal slowdown"], "the power cap is normal"


@pytest.mark.slow
def test_an_empty_page_shows_the_recorded_case_nearest_to_what_is_chosen(draw, profiles):
    cases = [{**synthetic.case(seq), "mask": mask} for seq in (512, 4096) for mask in ("causal", "bigbird")]
    records = [dataclasses.replace(r, case=c) for c in cases for r in synthetic.point()]
    run = synthetic.run(
        spec=synthetic.SPEC | {"cases": [{**synthetic.case(2048), "mask": "bigbird"}, *cases]}
    )  # the first was never reached
    folders.write(profiles / "recorded", run, records)
    at = draw("kernels", mask="bigbird", seq="3000")
    assert widget(at.selectbox, "case").value == "seq=4096, mask=bigbird"
    widget(at.text_input, "sequence, typed").set_value("300")
    assert widget(calm(at.run()).selectbox, "case").value == "seq=512, mask=bigbird"
    assert "Closest recorded run" in said(at.caption)


@pytest.mark.parametrize("opened", [{}, {"run": "20261121-100000-bench-222222"}], ids=["newest", "opened"])
def test_a_run_without_a_result_hides_no_better_one(draw, profiles, opened):
    folders.write(profiles, synthetic.run("20261120-100000-bench-111111"), synthetic.point())
    empty = synthetic.run("20261121-100000-bench-222222", status="cancelled", reason="by user")
    folders.write(profiles, empty, [])
    at = draw("kernels", op="attention", **opened)
    charts = json.dumps([json.loads(c.proto.spec) for c in at.get("plotly_chart")])
    assert "Speed-up over" in charts
    assert ("cancelled before any result" in said(at.caption)) == bool(opened)


def test_a_grid_opens_in_the_form_as_its_first_sweep():
    cases = tuple(
        {**synthetic.case(seq), "mask": mask} for mask in ("causal", "bigbird") for seq in (512, 2048)
    )
    query = form_query.of(synthetic.run(spec=synthetic.SPEC | {"cases": cases}))
    assert (
        query["sweep"] == "seq"
        and query["seqs"] == "512,2048"
        and query["mask"] == "causal"
        and "masks" not in query
    )


def test_a_run_that_is_opened_fills_the_form_and_what_differs_is_said(draw, asked, profiles):
    spec = submit.validate(
        "bench", {"op": "add", "impls": ["eager", "cpu"], "cases": [{"n": 777}], "baseline": "eager"}
    )
    record = dataclasses.replace(
        synthetic.ok("cpu", 1, 2, spec["cases"][0], "cpu"), op="add", dtype="float32"
    )
    run = synthetic.run(spec=spec)
    folders.write(profiles, run, [record])
    at = draw("kernels", run=run.id)
    assert query(at)["op"] == "add" and widget(at.text_input, "n, typed").value == "777" and not at.info
    widget(at.text_input, "n, typed").set_value("500")
    calm(at.run())
    assert "other settings than the form's: n 777 instead of 500" in said(at.info)
    press(at, "Measure this")
    assert asked[0][1]["cases"] == [{"n": 500}]


def test_a_run_of_another_device_fills_what_is_possible_here(draw, profiles):
    run = synthetic.run(spec=synthetic.SPEC | {"cases": [synthetic.case(1024)]})
    folders.write(profiles / "recorded", run, synthetic.point())
    at = draw("kernels", run=run.id)
    assert query(at)["seq"] == "1024" and not at.warning and not at.error
    assert "eager" in widget(at.multiselect, "implementations").value


def test_the_example_of_an_own_kernel_is_compared_with_eager_alone(draw, asked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    at = press(draw("kernels", op="softmax"), "Write an example and add it")
    mine = f"{tmp_path}/fusescope/kernels/my_softmax.py:mine"
    assert widget(at.multiselect, "implementations").value == ["eager", mine]
    assert mine in said(at.caption) and "import torch" in open(mine.rpartition(":")[0]).read()
    press(at, "Run")
    assert asked[0][1]["impls"] == ["eager", mine] and asked[0][1]["baseline"] == "eager"


def test_own_kernels_join_what_somebody_has_chosen(draw, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    at = press(draw("kernels", op="add", impl="eager"), "Write an example and add it")
    assert widget(at.multiselect, "implementations").value[:-1] == ["eager"]


@pytest.mark.slow
def test_the_share_of_the_roof_is_said(draw, recorded):
    """It stood in the hover boxes alone."""
    query = {"op": "attention_decode", "dtype": "float16", "batch": "1", "seq_max": "32768", "kv_heads": "8"}
    at = draw("kernels", view="Roofline", **query)
    text = said(at.caption).replace("\\", "")
    share = re.search(r"Share of the roof, here the measured copy bandwidth: .*v4_cluster ([\d.]+) %", text)
    assert share and 80 < float(share[1]) < 100


@pytest.mark.parametrize(
    ("page", "query", "label"),
    [
        ("kernels", {}, "operator"),
        ("kernels", {"do": "own"}, "operator"),
        ("profiler", {"do": "now"}, "operator or model"),
        ("app", {}, "What is fastest for"),
    ],
)
def test_operators_are_in_the_order_of_their_titles(draw, profiles, page, query, label):
    """ "QKV bias" stood after "Softmax", in the order of module names that nobody sees."""
    listed = widget(draw(page, **query).selectbox, label).options
    titles = [text for text in listed if text in ops.titles().values()]
    assert len(titles) == len(ops.names()) and titles[1:] == sorted(titles[1:], key=str.casefold)


@pytest.mark.slow
def test_operands_of_another_dtype_are_said(draw, recorded):
    """Headline and chart of an fp8 kernel said "float16" alone."""
    at = draw("runs", run="20261128-034610-bench-dd174b")
    assert "v1_hopper multiplies e4m3 operands, the others float16 ones." in said(at.markdown)
    assert "float16 (v1_hopper: e4m3)" in figures(at)
    assert "operands" not in said(draw("runs", run="20261128-034837-bench-6886de").markdown)
