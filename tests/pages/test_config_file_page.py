"""A model by its config.json on the Models page: phases and sliders of one that generates, the job that Run
sends, and the reasons of what it has not."""

import json

import pytest
from drawn_page import calm, everything, figures, query, widget

from fusescope.jobs.kinds import model as kind

SIZES = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96, "vocab_size": 99}
LLAMA = SIZES | {"num_hidden_layers": 2, "num_key_value_heads": 1, "max_position_embeddings": 256}
PHASES = ["prefill", "decode", "generate", "both"]


@pytest.fixture
def opened(draw, described_here, tmp_path):
    """opened(model_type, more, query): the form on such a file, confirmed."""

    def of(model_type, more=LLAMA, **settings):
        file = tmp_path / "config.json"
        file.write_text(json.dumps({"model_type": model_type} | more))
        at = draw("models", model="config.json", config_file=str(file), **settings)
        return calm(widget(at.button, "Use it").click().run())

    return of


def test_until_a_file_is_confirmed_the_result_says_what_the_settings_wait_for(draw, tmp_path):
    """On a phone the form is closed, and the page was empty."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"} | LLAMA))
    for given in ({}, {"config_file": str(tmp_path / "config.json")}):
        at = draw("models", model="config.json", **given)
        assert any(c.value.startswith("No model yet: the settings wait") for c in at.caption)


def phases(at):
    found = [g for g in at.button_group if g.label == "phase"]
    return list(found[0].options) if found else None


def test_a_file_of_a_covered_family_has_the_form_of_a_preset(opened):
    at = opened("llama", phase="generate", new="8", seq="32")
    assert phases(at) == PHASES and query(at)["phase"] == "generate"
    assert widget(at.multiselect, "execution modes").value == ["eager", "sdpa", "fusescope", "fused"]
    assert widget(at.text_input, "new, typed").value == "8"
    assert {s.label for s in at.select_slider} == {"batch", "sequence", "layers", "new"}
    assert widget(at.selectbox, "mask").value == "causal"
    assert "% kept" in figures(at)


def test_run_sends_the_phase_of_a_file(opened, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "fusescope.jobs.submit.submit",
        lambda kind, spec, title="": sent.append(spec) or "20261120-104200-model-ffffff",
    )
    at = opened("llama", phase="generate", new="8", seq="32", impl="eager,fused")
    at.button(key="models/run").click()
    at.run()
    (spec,) = sent
    assert spec["impls"] == ["eager", "fused"]
    assert (spec["cases"][0]["phase"], spec["cases"][0]["new"]) == ("generate", 8)
    assert kind.validate(spec)["cases"] == spec["cases"], "the job takes it as it is"


def test_a_generic_decoder_has_phases_and_says_why_it_has_no_fused_layers(opened):
    at = opened("phi3", LLAMA | {"pad_token_id": 0}, phase="decode")
    assert phases(at) == PHASES and query(at)["phase"] == "decode"
    assert not any(s.label == "mask" for s in at.selectbox), "its masks are its own"
    assert widget(at.multiselect, "execution modes").value == ["eager", "sdpa", "fusescope"]
    assert "needs a weight table" in everything(at)


def test_an_encoder_has_no_phases(opened):
    at = opened("bert", SIZES | {"num_hidden_layers": 2}, phase="decode")
    assert phases(at) is None
