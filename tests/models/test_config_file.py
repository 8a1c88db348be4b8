"""Models by their config.json: described, refused in a sentence, every execution mode equal to float64."""

from __future__ import annotations

import pytest

from fusescope import models
from fusescope.cli.verbs import model as verb
from fusescope.models.by_config import config_file
from fusescope.models.describe import memory
from tests.models.config_files import FILES, asked, case, write

KINDS = ("qwen2", "gemma3_text", "mixtral", "mamba", "roberta", "deberta-v2", "deit", "bart")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(config_file, "asked", asked)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_that_runs_equals_float64_and_the_others_say_why(kind, tmp_path):
    from fusescope.models.run import build, modes, tolerance

    name = write(tmp_path, kind)
    lengths = {} if kind == "deit" else {"lengths": "9+17"}
    for more in ({}, lengths, {"layers": 1}):
        whole = case(name, **more)
        model = build.build(name, whole, "float32")
        inputs = build.inputs(model, whole)
        nodes = models.anatomy(name, whole)
        unused = sum(n.count for n in nodes if n.name.endswith("Model/pooler"))
        assert nodes[0].count - unused == sum(p.numel() for p in model.module.parameters())
        exact = tolerance.reference(model, inputs)
        there = tolerance.valid(inputs, exact)
        assert exact.isfinite().all()
        for mode in models.modes(name):
            if mode.reason or mode.name.startswith(("flex", "compile-", "fused-")):
                continue
            out = modes.make(mode.name, model, inputs)()
            out, ref = (out, exact) if there is None else (out[there], exact[there])
            assert float((out - ref).norm() / ref.norm()) < tolerance.allowed_norm(whole["layers"], "float32")
    said = {m.name: m.reason for m in models.modes(name)}
    assert said["eager"] is None
    assert said["fused"] is None if kind == "qwen2" else "weight table" in said["fused"]
    if kind in ("mamba", "deberta-v2"):
        assert "attention registry" in said["fusescope"] and "sdpa does not compute" in said["sdpa"]
    else:
        assert said["fusescope"] is None and said["sdpa"] is None


def test_time_by_module_is_the_whole_and_of_a_layers_modules(tmp_path):
    from fusescope.models.inspect import parts
    from fusescope.models.run import build, modes

    name = write(tmp_path, "phi3")
    whole = case(name)
    model = build.build(name, whole, "float32")
    inputs = build.inputs(model, whole)
    found = parts.measure("sdpa", model, inputs, modes.make("sdpa", model, inputs))
    assert {"embed_tokens", "layers.{i}.self_attn", "layers.{i}.mlp", "norm"} <= found.keys()
    assert sum(p["share"] for p in found.values()) == pytest.approx(1)
    assert parts.module_of("h.3.attn.c_attn") == "h.{i}.attn"
    assert parts.module_of("encoder.layer.0.attention.self.query") == "encoder.layer.{i}.attention"
    assert parts.module_of("layers.0") == "layers.{i}" and parts.module_of("wte") == "wte"


def test_accuracy_by_module(tmp_path):
    from fusescope.models.accuracy import job
    from fusescope.models.run import build

    name = write(tmp_path, "roberta")
    whole = case(name, lengths="9+17")
    model = build.build(name, whole, "float32")
    rows = job.compare(model, build.inputs(model, whole), whole, "fusescope", "float32")["rows"]
    names = [r["name"] for r in rows]
    assert "encoder.layer.1.attention.self:probabilities" in names and names[-1] == "output"
    assert all(r["accepted"] for r in rows)


@pytest.mark.parametrize(
    "kind, content, says",
    [
        ("nobody", {}, "model_type 'nobody' is not one of transformers"),
        ("nobody", {"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ("qwen2", {"quantization_config": {"quant_method": "gptq"}}, "quantized"),
        ("qwen2", {"num_hidden_layers": 5000}, "1 to 1024 layers"),
        ("qwen2", {"num_attention_heads": "many"}, "refuses it"),
        ("wav2vec2", {}, "takes input_values; inputs made here are"),
    ],
)
def test_what_is_no_model_here_is_refused_in_a_sentence(kind, content, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        case(write(tmp_path, kind, **content))


def test_cases_are_held_to_the_file(tmp_path):
    name = write(tmp_path, "qwen2")
    whole = case(name)
    assert (whole["layers"], whole["heads"], whole["mask"]) == (3, 2, "causal")
    for wrong, says in (
        ({"layers": 4}, "has 3 layers; 4"),
        ({"heads": 4}, "has heads 2; 4"),
        ({"seq": 65}, "positions for 64 tokens"),
        ({"mask": "full"}, "from left to right"),
    ):
        with pytest.raises(ValueError, match=says):
            case(name, **wrong)
    with pytest.raises(ValueError, match=r"a checkpoint of .* is its own folder"):
        models.config(name, whole, str(tmp_path))
    write(tmp_path, "qwen2", vocab_size=98)
    with pytest.raises(ValueError, match="has changed"):
        models.validate(name, whole)
    with pytest.raises(ValueError, match="there is no"):
        config_file.resolved(str(tmp_path / "nothing"))
    (tmp_path / "qwen2" / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="no JSON object"):
        case(name)


def test_weights_of_a_folder_are_loaded(tmp_path):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from fusescope.models.run import build

    given = AutoConfig.for_model("qwen2", **FILES["qwen2"])
    saved = AutoModelForCausalLM.from_config(given).eval()
    saved.save_pretrained(tmp_path / "saved")
    name = config_file.resolved(str(tmp_path / "saved"))
    assert config_file.weights_of(name) == name
    whole = case(name)
    model = build.build(name, whole, "float32")
    inputs = build.inputs(model, whole)
    with torch.no_grad():
        expected = saved.model(input_ids=inputs["input_ids"]).last_hidden_state
        torch.testing.assert_close(build.call(model.module, inputs), expected)


def test_layers_are_reduced_where_memory_does_not_hold_them(tmp_path, monkeypatch):
    for name, more in ((write(tmp_path, "qwen2"), {}), ("llama3-8b", {"seq": 64})):
        whole = models.validate(name, more)
        assert models.reduced(name, whole, "float32", "cpu") is None or name == "llama3-8b"
        two = 12 * models.anatomy(name, {**whole, "layers": 2})[0].count
        monkeypatch.setattr(memory, "_room", lambda device, two=two: (two * 4 // 3 + 16, "it has little"))
        fewer, says = models.reduced(name, whole, "float32", "cpu")
        assert fewer == {**whole, "layers": 2}
        assert f"reduced to 2 of its {whole['layers']} layers" in says and "it has little" in says
        models.check_memory(name, fewer, "float32", "cpu")
        monkeypatch.undo()
        monkeypatch.setattr(config_file, "asked", asked)


def test_the_command_takes_a_path(tmp_path):
    import argparse

    from fusescope.cli import parser_of

    name = write(tmp_path, "qwen2")
    words = [str(tmp_path / "qwen2"), "--seq", "17", "--layers", "2", "--device", "cpu"]
    spec = verb.specify(parser_of("model", words)[0].parse_args(words))
    assert spec["op"] == f"model:{name}" and spec["cases"][0]["layers"] == 2
    assert models.named(spec["op"]) == name and models.title(name) == "qwen2/config.json"
    assert models.named("model:/gone/config.json") == "/gone/config.json", "a run opens where its file is not"
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parser_of("model", ["/nowhere/config.json"])[0].parse_args(["/nowhere/config.json"])


@pytest.mark.slow
def test_a_process_without_torch_can_ask(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("FUSESCOPE_BUILD", str(tmp_path / "cache"))
    found = config_file.description(write(tmp_path, "qwen2", vocab_size=97))
    assert (found["class"], found["layers"], found["ours"]) == ("Qwen2ForCausalLM", 3, None)
    assert list((tmp_path / "cache" / "architectures").glob("*.json"))
