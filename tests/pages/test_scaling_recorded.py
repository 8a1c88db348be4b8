"""The Scaling page on the runs that ship with the project."""

import re

import pytest
from drawn_page import calm, query, said

from fusescope.analysis.scaling import measured
from fusescope.core.paths import ROOT
from fusescope.store import folder
from pages._ui.models import several_devices
from pages._ui.scaling import tables


@pytest.mark.usefixtures("recorded")
def test_settings_of_predictions_belong_to_the_run_on_show(draw):
    """A batch chosen for one run says nothing of the next one, of another model."""
    batch = lambda at: [n.value for n in at.text_input if n.key.endswith("/p_batch/typed")]  # noqa: E731
    at = draw("scaling", model="bert-base", view="predicted layouts", p_batch="768", p_memory="40")
    assert batch(at) == ["768"] and query(at)["p_batch"] == "768"
    calm(at.selectbox(key="scaling/model").set_value("llama3-8b").run())
    assert batch(at) == ["8"] and not {"p_batch", "p_memory"} & set(query(at))
    (own,) = [n for n in at.text_input if n.key.endswith("/p_batch/typed")]
    calm(own.set_value("4").run())
    assert batch(at) == ["4"] and "4 sequences of 2,048 tokens" in said(at.markdown)


@pytest.mark.usefixtures("recorded")
def test_a_link_with_a_batch_to_a_run(draw):
    link = {"run": "20261127-092246-parallel-7bcf5d", "view": "predicted layouts", "p_batch": "16"}
    at = draw("scaling", **link)
    assert "4 of 32 layers, 16 sequences of 2,048 tokens" in said(at.markdown) and not at.warning


@pytest.mark.usefixtures("recorded")
def test_a_run_of_more_devices_is_opened_without_an_error(draw):
    """Nobody here chose its four ranks; with one more layout of one's own it is an error."""
    at = draw("scaling", run="20261127-092441-parallel-498ef5")
    assert not at.error and "cannot be measured here. The layouts need 4 ranks" in said(at.info)
    assert at.button(key="scaling/run").disabled
    at.text_input(key="scaling/layouts").set_value("tp4,dp4")
    assert "need 4 ranks" in said(calm(at.run()).error)


@pytest.mark.usefixtures("recorded")
def test_other_settings_are_said_of_a_model_that_does_not_fit_here(draw):
    at = draw("scaling", model="llama3-8b")
    assert at.button(key="scaling/run").disabled, "8 billion parameters on a CPU"
    assert "layers 4 instead of 32" in said(at.info) and "sequence 2,048 instead of 128" in said(at.info)
    assert at.button(key="differs/measure/20261127-092246-parallel-7bcf5d").disabled


def _sentence(run_id):
    records = folder.records(ROOT / "profiles" / "recorded" / run_id)
    return tables.sentence(records, measured.series(records), "sdpa")


def test_the_ideal_is_that_of_the_same_attention_on_one_device():
    text = _sentence("20261127-092441-parallel-498ef5")
    assert text.startswith(
        "fused-dp4 on 4 devices is 5.16× faster than sdpa on one device, and 4.03× the speed"
    )
    assert text.endswith("of fused on one: 101 % of the ideal."), text


def test_a_layout_whose_interval_overlaps_may_be_as_fast():
    text = _sentence("20261127-164056-parallel-7ab338")
    assert text.startswith("fusescope-dp4 on 4 devices"), text
    assert text.endswith("of the ideal; sdpa-dp4 may be as fast, 22.7 ms against 22.5 ms."), text


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "llama3-8b",
            r"Over several GPUs, at batch=8, seq=2048, .*layers=4 of 32, .*phase=prefill, float16, "
            "recorded on NVIDIA H100 80GB HBM3: dp4 3.55×, tp4 2.03×, pp4 1.78× against sdpa on one device",
        ),
        (
            "gpt2",
            r"Over several GPUs, at batch=.*: dp4 3.66×, pp4 1.89×, tp4 1.80× against sdpa on one device",
        ),  # not those of a CPU
        ("bert-small", None),
    ],
)
def test_the_models_page_links_to_the_parallel_runs_of_its_model(draw, model, text):
    at = draw("models", model=model)
    if text is None:
        assert "Over several" not in said(at.caption)
        return
    line = next(m for m in said(at.caption).splitlines() if "Over several" in m)
    assert re.search(text, line), line
    opened = draw("scaling", run=line.rpartition("run=")[2].rstrip(")"))
    assert opened.selectbox(key="scaling/model").value == model and not opened.warning


def test_a_gain_that_is_not_decided_is_no_figure(profiles):
    path = next((ROOT / "profiles" / "recorded").glob("*parallel-498ef5"))
    records = folder.records(path)
    fewer = [r for r in records if not r.impl.endswith("4")]
    assert (
        several_devices.said(fewer, "sdpa")
        == "dp2 1.99×, pp2 1.51×, tp2 inconclusive against sdpa on one device"
    )
    assert several_devices.said(fewer[:1], "sdpa") == "" == several_devices.said([], "sdpa")
