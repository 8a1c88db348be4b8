"""The Models page: every view with and without runs, the state in the URL, reports drawn, mistakes as one
sentence."""

import json
import re
import shutil

import folders
import pytest
import synthetic
from drawn_page import calm, figures, query, said, widget

from fusescope import models
from fusescope.charts.models import layer_parts
from fusescope.core import paths
from fusescope.core.records import Accuracy, Rate, Record, Speedup, Times
from fusescope.models.describe import memory as room
from pages._ui.app import run_data
from pages._ui.models import views
from pages._ui.models.views import NAMES

PARTS = {
    "qkv": {"ms": 1.0, "share": 0.25},
    "attention": {"ms": 2.0, "share": 0.5},
    "ffn": {"ms": 1.0, "share": 0.25},
    "head": {"ms": 0.0, "share": 0.0},
}


def record(impl, ms, base, backend="flash_attention", name="bert-base", **case):
    gain = base / ms
    memory = {
        "weights_bytes": 1 << 28,
        "kept_bytes": 0,
        "call_bytes": 1 << 24,
        "peak_bytes": 1 << 29,
        "nvml_process_bytes": 1 << 30,
    }
    extra = {
        "parameters": 109_482_240,
        "throughput": {"sequences_per_s": 8e3 / ms, "tokens_per_s": 4e6 / ms, "images_per_s": None},
        "percentiles_ms": {"graph": {"p50": ms, "p90": ms * 1.1, "p99": ms * 1.3}},
        "memory": memory,
        "share_of_peak": 0.37,
        "parts": PARTS if impl != "compile-default" else None,
        "valid_tokens": 4096,
    }
    return Record(
        f"model:{name}",
        impl,
        models.validate(name, {"batch": 8, "seq": 512} | case),
        "float16",
        "cuda:0",
        "ok",
        accuracy=Accuracy(2e-3, 3e-2, 0.999, "float64"),
        time_ms=Times(900.0, synthetic.time(ms * 1.5), None, synthetic.time(ms), None),
        speedup=Speedup("graph", gain, gain * 0.99, gain * 1.01),
        tflops=Rate(90 / ms, 100 / ms),
        backend=backend,
        extra=extra,
    )


def a_run(profiles, records, run_id="20261120-104200-model-abc123", recorded=False, **changes):
    impls = list(dict.fromkeys(r.impl for r in records))
    cases = list({json.dumps(dict(r.case)): dict(r.case) for r in records}.values())
    spec = synthetic.SPEC | {
        "op": records[0].op,
        "impls": impls,
        "cases": cases,
        "checkpoint": None,
        "parts": True,
    }
    run = synthetic.run(run_id, kind="model", spec=spec, **changes)
    folders.write(profiles / "recorded" if recorded else profiles, run, records)
    return run


@pytest.fixture
def measured(profiles):
    failed = Record(
        "model:bert-base",
        "flex",
        models.validate("bert-base", {"batch": 8, "seq": 512}),
        "float16",
        "cuda:0",
        "unsupported",
        reason="no compiler",
    )
    return a_run(
        profiles,
        [
            record("eager", 4.0, 4.0),
            record("sdpa", 2.0, 4.0),
            record("fused", 1.0, 4.0),
            record("compile-default", 1.5, 4.0),
            failed,
        ],
    )


def test_without_any_run_there_is_one_button_and_the_exact_counts(draw):
    at = draw("models")
    assert (
        "has not been measured here yet" in said(at.markdown)
        and widget(at.button, "Run a first comparison").disabled is False
    )
    assert {m.label: m.value for m in at.metric} == {
        "parameters": "109,482,240",
        "weights in float32": "418 MiB",
        "per layer": "7,087,872",
    }
    parts = at.dataframe[0].value.set_index("path").parameters
    assert parts["bert-base/embeddings"] == 23_837_184 and parts["bert-base/encoder"] == 85_054_464
    at.button_group(key="models/depth").set_value([4])
    counts = calm(at.run()).dataframe[0].value.set_index("path").parameters
    layer = "bert-base/encoder/layer 11"
    assert (counts[f"{layer}/attention"], counts[f"{layer}/intermediate"], counts[f"{layer}/output"]) == (
        2_363_904,
        2_362_368,
        2_361_600,
    )
    assert "23440896" in figures(at).replace(",", "")


@pytest.mark.slow
@pytest.mark.parametrize("view", NAMES)
def test_every_view_with_and_without_a_run(draw, view, measured):
    at = draw("models", view=view)
    assert not at.error and query(at)["view"] == view
    assert not draw("models", model="gpt2", view=view).error


def test_the_answer_has_bars_percentiles_memory_and_where_the_time_goes(draw, measured):
    at = draw("models", view="Table")
    assert "4.00× faster" in figures(at) and "flash_attention" in "".join(
        e.proto.body for e in at.get("html")
    )
    table = views.readable([record("eager", 4.0, 4.0), record("fused", 1.0, 4.0)], "eager").set_index("mode")
    assert (
        table.loc["fused", "p99 (ms)"] == pytest.approx(1.3)
        and table.loc["fused", "peak memory (MiB)"] == 512
    )
    assert table.loc["fused", "% of measured peak"] == pytest.approx(37) and "images/s" not in table
    order = [list(table).index(name) for name in ("p99 (ms)", "tokens/s", "first (ms)", "TFLOP/s")]
    assert order == sorted(order), "tokens/s was cut off at the right edge of 1440 pixels"
    flat = views.csv([record("fused", 1.0, 4.0)], "fused")
    assert flat.loc[0, "memory_nvml_process_bytes"] == 1 << 30 and flat.loc[0, "parts_ffn_ms"] == 1.0
    drawn = figures(draw("models", view="Layer parts"))
    assert "4.00 ms total" in drawn and '"embedding"' not in drawn
    assert "model bert-base" in said(draw("models", view="Reproduce").code)


def test_other_settings_dim_the_answer_and_say_which(draw, measured):
    at = draw("models", dtype="float32", impl="eager,sdpa")
    info = said(at.info)
    assert "other settings than the form's: execution modes" in info and "Speed-up" in figures(at)
    assert "dtype float16 instead of float32, device cuda:0 instead of cpu" in info
    assert {"Measure this", "Use its settings"} <= {b.label for b in at.button}


def test_a_peer_on_the_math_path_is_called_a_trap(draw, profiles):
    a_run(profiles, [record("sdpa-graph", 1.0, 1.0), record("sdpa-graph-trap", 9.0, 1.0, backend="math")])
    assert "math path" in said(draw("models").warning)
    assert not layer_parts.of(record("compile-default", 1, 1))


def test_a_recorded_run_stands_in_for_one_s_own(draw, profiles):
    a_run(profiles, [record("eager", 4.0, 4.0), record("fused", 1.0, 4.0)], recorded=True)
    at = draw("models", dtype="float32", seq="3000")
    assert "has not been measured here" in said(at.markdown) and "Speed-up" in figures(at) and not at.info
    assert "Closest recorded run" in said(at.caption) and "instead of 3,000" in said(at.caption)
    at = draw("models", model="gpt2")
    assert "No recorded run of GPT-2 small ships" in said(at.caption) and "Speed-up" not in figures(at)


def test_prefill_and_decode_stand_apart(draw, profiles):
    both = [record("sdpa", 4.0, 4.0, name="gpt2", phase=p, seq=128) for p in ("prefill", "decode")]
    a_run(profiles, both)
    at = draw("models", model="gpt2", phase="both", view="Table")
    assert {m.label for m in at.metric} == {"prefill, tokens/s", "decode, tokens/s"} and query(at)[
        "phase"
    ] == "both"
    at = draw("models", model="gpt2", phase="both", sweep="seq", seqs="64,128", view="Reproduce")
    assert "--phase prefill,decode" in said(at.code) and not at.error


@pytest.mark.slow
@pytest.mark.parametrize(
    "given, says",
    [
        ({"heads": "7", "checkpoint": "/nowhere"}, "nowhere"),
        ({"model": "vit-base", "seq": "200"}, "200"),
        ({"lengths": "3+x", "batch": "2"}, "3+x"),
        ({"lengths": "100+900", "batch": "2"}, "900"),
        ({"model": "gpt2", "mask": "sliding_window"}, "left to right"),
        ({"head_dim": "12"}, "12"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_run_is_off(draw, given, says):
    at = draw("models", **given)
    assert says in said(at.error) and "\n" not in at.error[0].value and widget(at.button, "Run").disabled


def test_words_of_the_url_that_mean_nothing_are_said(draw):
    at = draw("models", model="bort", dtype="int3", view="Nothing", run="20261120-104200-model-ffffff")
    text = said(at.warning)
    assert all(word in text for word in ("bort", "int3", "Nothing", "ffffff")) and not at.error


def test_a_run_of_several_cases_fills_the_form_with_its_first(draw, recorded):
    """Of GPT-2 decoding at three shapes the form said prefill, and the page that the run was another's."""
    at = draw("models", run="20261126-112416-model-3c8687")
    assert query(at)["phase"] == "decode" and not {"batch", "seq"} & set(query(at)), (
        "1 and 128 go without saying"
    )
    assert widget(at.selectbox, "case").value == "all cases" and not at.info


def test_lengths_are_fixed_spread_or_a_list(draw):
    assert query(draw("models", batch="4", lengths="uniform:low=0.5"))["lengths"] == "uniform:low=0.5"
    at = draw("models", batch="2", lengths="100+37")
    assert query(at)["lengths"] == "100+37" and not at.error
    assert "lengths" not in query(draw("models"))


def test_pressing_run_submits_exactly_what_is_chosen(draw, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "fusescope.jobs.submit.submit",
        lambda kind, spec, title="": sent.append((kind, spec)) or "20261120-104200-model-ffffff",
    )
    at = draw(
        "models", model="bert-small", impl="eager,sdpa", seq="32", layers="1", batch="2", lengths="32+9"
    )
    at.button(key="models/run").click()
    at.run()
    kind, spec = sent[0]
    assert kind == "model" and spec["op"] == "model:bert-small" and spec["impls"] == ["eager", "sdpa"]
    assert spec["cases"][0]["lengths"] == "32+9" and spec["cases"][0]["layers"] == 1
    from fusescope.jobs.kinds import model

    assert model.validate(spec)["cases"] == spec["cases"], "the job takes it as it is"


def test_a_run_that_goes_on_is_followed(draw, profiles):
    from fusescope.store import files

    run = a_run(profiles, [record("eager", 4.0, 4.0)], status="running")
    lock = files.take_lock(profiles / run.id)
    try:
        at = draw("models", run=run.id)
        assert "Speed-up" in figures(at) and not at.error
    finally:
        import os

        os.close(lock)


def config(folder, **changes):
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96, "vocab_size": 99}
    file = folder / "config.json"
    file.write_text(json.dumps({"model_type": "qwen2", "num_hidden_layers": 3} | sizes | changes))
    return file


def test_a_run_of_a_config_file_is_shown_before_the_file_is_confirmed(
    draw, described_here, profiles, tmp_path
):
    """A link to such a run had 13 warnings on settings, no result, and lost the run from the address."""
    file = config(tmp_path)
    case = models.validate(str(file), {"batch": 1, "seq": 48})
    op = f"model:{file}"
    spec = {"op": op, "impls": ["eager", "sdpa"], "cases": [case], "baseline": "eager", "dtype": "float32"}
    run = synthetic.run("20261120-104200-model-abc123", kind="model", spec=spec | {"device": "cpu"})
    base = record("eager", 2.0, 2.0)
    rows = [base, record("sdpa", 1.0, 2.0)]
    rows = [type(r)(**{**vars(r), "op": op, "case": case}) for r in rows]
    folders.write(profiles, run, rows)
    at = draw("models", run=run.id)
    assert not at.warning and "2.00× eager" in said(at.markdown)
    assert query(at)["run"] == run.id and query(at)["seq"] == "48"
    next(b for b in at.button if b.label == "Use it").click()
    calm(at.run())
    assert not at.warning and "2.00× eager" in said(at.markdown)
    assert query(at)["run"] == run.id and widget(at.text_input, "sequence, typed").value == "48"


def test_a_model_by_its_config_file(draw, described_here, tmp_path):
    file = config(tmp_path)
    at = draw("models", model="config.json")
    assert "Name a config.json" in said(at.caption)
    widget(at.text_input, "config.json or its folder").input(str(file)).run()
    assert not at.error
    assert [m.value for m in at.metric if m.label == "parameters"] == [
        f"{models.anatomy(str(file))[0].count:,}"
    ]
    assert query(at)["config_file"] == str(file)
    file.write_text(json.dumps({"model_type": "nobody"}))
    at.run()
    assert any("is not one of transformers" in e.value for e in at.error)


def test_the_url_says_the_dtype_of_a_config_file(draw, described_here, tmp_path):
    at = draw("models", model="config.json", config_file=str(config(tmp_path)), dtype="bfloat16")
    calm(widget(at.button, "Use it").click().run())
    assert widget(at.selectbox, "dtype").value == "bfloat16" == query(at)["dtype"]


def test_layers_that_this_machine_has_no_memory_for_are_no_difference(draw, profiles):
    """It said "layers 32 instead of 3" while the form showed 32."""
    run = "20261128-182722-model-368f43"
    shutil.copytree(paths.ROOT / "profiles" / "recorded" / run, profiles / "recorded" / run)
    at = draw("models", run=run)
    assert "layers" in said(at.info) and "instead of" not in said(at.info)


def test_layers_that_run_here_and_those_of_the_result_are_told_apart(draw, profiles, monkeypatch):
    """The slider said 32 layers, a box at the end of the form 3 of them, and the result had all."""
    monkeypatch.setattr(room, "_room", lambda device: (16 << 30, "21.8 GiB are available"))
    run = "20261128-182722-model-368f43"
    shutil.copytree(paths.ROOT / "profiles" / "recorded" / run, profiles / "recorded" / run)
    at = draw("models", run=run)
    fewer = re.search(r"Run here, on .+: Llama 3 8B is reduced to (\d+) of its 32 layers", said(at.info))
    assert fewer and f"with {fewer[1]} of 32 layers" in said(at.caption), said(at.caption)
    assert "The result on show has 32 layers (measured on NVIDIA H200)." in said(at.caption)


def test_a_step_of_decoding_shows_no_square_mask(draw, profiles):
    """It showed a triangle with "50.1 % kept"; one query attends to every key."""
    at = draw("models", model="gpt2", phase="decode", seq="512")
    assert "A decode step has one query; it attends to all 512 keys and its own." in said(at.caption)
    assert "% kept" not in figures(at)
    assert "% kept" in figures(draw("models", model="gpt2", phase="both", seq="512"))


def test_decoding_is_told_in_tokens_per_second():
    step = record("sdpa", 4.0, 4.0, name="gpt2", phase="decode", seq=128)
    table = views.readable([step], "sdpa")
    assert "tokens/s" in table and "sequences/s" not in table
    both = [step, record("sdpa", 4.0, 4.0, name="gpt2", phase="prefill", seq=128)]
    assert {"tokens/s", "sequences/s"} <= set(views.readable(both, "sdpa"))


@pytest.mark.slow
def test_a_decode_step_says_how_near_it_is_to_memory_s_limit(draw, recorded):
    """Of the matrix rate it reached 0.855 %, which says nothing where weights are read."""
    run = "20261128-182722-model-368f43"
    at = draw("models", model="llama3-8b", run=run, view="Table")
    assert "fastest: fused-fp8, 80.4 % of memory's limit" in said(at.caption)
    table = views.readable(run_data.records(run), "eager", "NVIDIA H200").set_index("mode")
    assert table.loc["fused", "% of memory's limit"] == pytest.approx(91.7, abs=0.05)
    assert "% of measured peak" not in table
    both = views.readable(run_data.records("20261126-105530-model-7a2273"), "eager", "NVIDIA H100 80GB HBM3")
    assert both["% of memory's limit"].isna().any() and both["% of measured peak"].notna().all()
