"""Weights by table: checkpoints that fit, and each way in which one may not."""

import pytest

from fusescope import models
from fusescope.models.describe import checkpoint
from fusescope.models.run import build, weights
from tests.models.tiny_models import case, save


def _loaded(folder, name="bert-base"):
    return build.build(
        name, models.validate(name, {"batch": 2, "seq": 17}, str(folder)), "float32", checkpoint=str(folder)
    )


@pytest.mark.sample(1, "t5-small-")
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, prefix",
    [("bert-base", ""), ("bert-base", "bert."), ("vit-base", "vit."), ("llama-small", ""), ("t5-small", "")],
)
def test_a_checkpoint_gives_the_very_weights(tmp_path, name, prefix):
    saved = save(tmp_path, name, prefix)
    again = dict(_loaded(tmp_path, name).module.named_parameters())
    assert again and all((again[n] == p).all() for n, p in saved.module.named_parameters())


def test_gpt2_without_its_prefix_and_with_old_buffers(tmp_path):
    import torch

    saved = save(
        tmp_path,
        "gpt2",
        rename=lambda n: n.removeprefix("transformer."),
        change=lambda s: s.update({"h.0.attn.bias": torch.ones(1, 1, 4, 4)}),
    )
    again = dict(_loaded(tmp_path, "gpt2").module.named_parameters())
    assert all((again[n] == p).all() for n, p in saved.module.named_parameters())


def test_names_of_published_vit_checkpoints(tmp_path):
    table = {
        w.theirs: w.also[0]
        for w in models.family("vit-base").WEIGHTS
        if w.also and w.also[0].startswith("encoder.")
    }

    def published(name):
        for layer in ("0", "1"):
            name = {k.replace("{i}", layer): v.replace("{i}", layer) for k, v in table.items()}.get(
                name, name
            )
        return name

    saved = save(tmp_path, "vit-base", "vit.", published)
    header = checkpoint._headers(tmp_path)
    assert "vit.encoder.layer.0.attention.attention.query.weight" in header
    again = dict(_loaded(tmp_path, "vit-base").module.named_parameters())
    assert all((again[n] == p).all() for n, p in saved.module.named_parameters())


def _without(name):
    return lambda state: state.pop(name)


def _shaped(name):
    def change(state):
        state[name] = state[name][:-1]

    return change


def _beyond(state):
    state["encoder.layer.2.output.dense.bias"] = state["encoder.layer.1.output.dense.bias"].clone()


def _stranger(state):
    state["encoder.gate"] = state["encoder.layer.1.output.dense.bias"].clone()


@pytest.mark.parametrize(
    "change, says",
    [
        (
            _without("encoder.layer.1.attention.self.key.weight"),
            "missing: encoder.layer.1.attention.self.key.weight",
        ),
        (
            _shaped("encoder.layer.0.intermediate.dense.weight"),
            "of another shape: encoder.layer.0.intermediate.dense.weight is [255, 64], not [256, 64]",
        ),
        (_beyond, "unexpected: encoder.layer.2.output.dense.bias"),
        (_stranger, "unexpected: encoder.gate"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named_and_not_loaded(tmp_path, change, says, monkeypatch):
    save(tmp_path, change=change)
    monkeypatch.setattr(weights, "fill", lambda *a: pytest.fail("something was loaded"))
    with pytest.raises(ValueError) as refused:
        _loaded(tmp_path)
    assert (
        says in str(refused.value)
        and "nothing was loaded" in str(refused.value)
        and "\n" not in str(refused.value)
    )


def test_heads_of_a_task_are_left_alone(tmp_path):
    import torch

    save(
        tmp_path,
        "bert-base",
        "bert.",
        change=lambda s: s.update(
            {"cls.predictions.bias": torch.zeros(3), "classifier.weight": torch.zeros(2, 64)}
        ),
    )
    config = models.config("bert-base", {}, str(tmp_path))
    assert checkpoint.examine("bert-base", config, str(tmp_path)).left == (
        "classifier.weight",
        "cls.predictions.bias",
    )


def test_pickles_and_damaged_files_are_refused(tmp_path):
    save(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = file.read_bytes()
    for damaged, says in (
        (whole[:-100], "it ends after"),
        (b"\xff" * 64, "its header would have"),
        (whole[:8] + b"[" + whole[9:], "no whole safetensors file"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=says):
            _loaded(tmp_path)
    file.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match="is a pickle, and those are not read"):
        _loaded(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, config, asked, says",
    [
        ("bert-base", {"model_type": "roberta"}, {}, "model_type bert, not 'roberta'"),
        (
            "bert-base",
            {"num_attention_heads": 7},
            {},
            "heads divides the width; the checkpoint's config.json says 7 heads and width 64",
        ),
        ("bert-base", {"hidden_size": None}, {}, "config.json does not say hidden_size"),
        (
            "bert-base",
            {"hidden_size": "wide"},
            {},
            "hidden_size of config.json must be an integer of at least 1, not 'wide'",
        ),
        (
            "bert-base",
            {"layer_norm_eps": "small"},
            {},
            "layer_norm_eps of config.json must be a number of at least 0, not 'small'",
        ),
        (
            "bert-base",
            {"hidden_act": "swish"},
            {},
            "hidden_act of a BERT checkpoint is gelu or gelu_new or gelu_pytorch_tanh, not 'swish'",
        ),
        ("vit-base", {"qkv_bias": False}, {}, "qkv_bias of a ViT checkpoint is true, not false"),
        (
            "vit-base",
            {"image_size": 65},
            {"seq": 26},
            "an image is square and a multiple of its patch; the checkpoint's config.json says 65 and 16",
        ),
        ("llama-small", {"num_key_value_heads": 3}, {}, "heads is a multiple of KV heads"),
        ("llama-small", {"rope_parameters": {"rope_type": "yarn"}}, {}, "of the kind yarn need factor"),
        (
            "llama-small",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            {},
            "of the kind default, linear, llama3, yarn, not 'dynamic'",
        ),
        ("t5-small", {"num_decoder_layers": 5}, {}, "as many decoder as encoder layers"),
        ("bert-base", {}, {"layers": 5}, "has layers 2; 5 was asked for"),
        ("bert-base", {}, {"seq": 600}, "has positions for at most 512 tokens; 600 were asked for"),
        ("vit-base", {}, {"seq": 26}, "has positions for exactly 17 tokens; 26 were asked for"),
    ],
)
def test_a_case_or_configuration_that_does_not_fit(tmp_path, name, config, asked, says):
    save(tmp_path, name, **config)
    with pytest.raises(ValueError) as refused:
        models.validate(name, {"batch": 2, "seq": 17} | asked, str(tmp_path))
    assert says in str(refused.value)


def test_no_folder_and_no_json(tmp_path):
    with pytest.raises(ValueError, match=r"a checkpoint is a folder with config\.json"):
        models.validate("bert-base", {}, str(tmp_path / "nothing"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        models.validate("bert-base", {}, str(tmp_path))


def test_ours_are_made_of_theirs():
    import torch

    model = build.build("bert-base", case("bert-base"), "float32")
    ours = weights.ours(model.family, model.config, model.module)
    state = dict(model.module.named_parameters())
    at = "encoder.layer.1.attention.self"
    assert torch.equal(
        ours["layers.1.qkv.weight"], torch.cat([state[f"{at}.{n}.weight"] for n in ("query", "key", "value")])
    )
    assert (
        ours["layers.0.ffn1.weight"].data_ptr()
        == state["encoder.layer.0.intermediate.dense.weight"].data_ptr()
    )  # not copied
