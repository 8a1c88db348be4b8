"""The links of Home's answers and its doors carry the question to the page that measures it."""

from urllib.parse import parse_qs

import pytest
import synthetic
from drawn_page import calm, query, said, widget

from fusescope.core.machine import environment
from pages._ui.answer import matching
from pages._ui.kernels.page import COMPARED

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
LLAMA = {"about": "llama3-8b", "phase": "decode", "batch": "1", "seq": "4096", "on": H100}
CASE = {
    "model": "llama3-8b",
    "batch": "1",
    "seq": "4096",
    "mask": "causal",
    "lengths": "fixed",
    "phase": "decode",
    "dtype": "float16",
    "recorded_on": H100,
}


def links(at, label: str) -> list[dict[str, str]]:
    """The queries of the links with this label."""
    found = [e.proto for e in at.get("page_link") if label in e.proto.label]
    return [{k: v for k, (v,) in parse_qs(link.query_string).items()} for link in found]


@pytest.mark.slow
def test_every_link_carries_the_whole_question(draw, recorded):
    """The link to the nearest run filled Models with the settings of that run, the door with none."""
    at = draw("app", **LLAMA)
    (attention, model), measure = links(at, "All implementations"), links(at, "Measure it here")
    assert model.items() >= {**CASE, "over": "eager"}.items() and "run" in model
    assert measure[1] == CASE == links(at, "Run a model")[0]
    assert measure[0].items() >= {"op": "attention_decode", "seq_max": "4096", "kv_heads": "8"}.items()
    assert measure[0] == links(at, "Compare kernels")[0] and "seq_max=4096" in attention["case"]
    assert links(at, "Check my function") == [{"do": "own"}]


def test_the_doors_are_plain_until_a_question_is_asked(draw, recorded):
    at = draw("app")
    assert links(at, "Run a model") == links(at, "Compare kernels") == [{}]


def test_a_device_of_this_machine_is_the_one_that_measures(draw, recorded):
    here = environment.collect("cpu")["device_name"]
    (found,) = links(draw("app", on=here), "Run a model")
    assert found["device"] == "cpu" and "recorded_on" not in found


@pytest.mark.slow
def test_models_takes_the_question_and_shows_what_was_recorded_on_its_device(draw, recorded):
    at = draw("models", **CASE)
    assert widget(at.selectbox, "model").value == "llama3-8b"
    assert query(at).items() <= {**CASE, "view": "Table"}.items()
    assert widget(at.selectbox, "dtype").value == "float16"
    assert "Closest recorded run (NVIDIA H100 80GB HBM3): sequence 512 instead of 4,096." in said(at.caption)


@pytest.mark.slow
def test_the_closest_run_is_of_the_device_that_was_asked_for(draw, recorded):
    case = {"op": "attention", "batch": "16", "seq": "512", "heads": "12", "dtype": "float16"}
    for name in (H200, H100):
        at = draw("kernels", **case, recorded_on=name)
        assert f"Recorded for these settings on {name}:" in said(at.caption)
        assert query(at)["recorded_on"] == name


@pytest.mark.slow
def test_the_nearest_run_is_opened_with_the_settings_that_were_asked_for(draw, recorded):
    at = draw("app", **LLAMA)
    at = draw("models", **links(at, "All implementations")[1])
    assert "for other settings than the form's: sequence 512 instead of 4,096." in said(at.info)
    calm(widget(at.button, "Use its settings").click().run())


def test_a_mask_with_its_defaults_written_out_is_the_same_mask():
    """The record may have "sliding_window:left=64,right=64", the form "sliding_window"."""
    specs = [
        synthetic.SPEC | {"cases": [synthetic.case(512) | {"mask": f"sliding_window{settings}"}]}
        for settings in ("", ":left=64,right=64", ":left=64,right=0")
    ]
    same, other = (matching.differs(synthetic.run(spec=s), specs[0], COMPARED) for s in specs[1:])
    assert same is None and "mask right 0 instead of 64" in other
