"""A model that was not recorded: its own bound, and under its own name the most similar one that was."""

import re

import pytest
from drawn_page import said, widget

from fusescope.store.answers import Found, Question
from pages._ui.home import stand_in

H200 = "NVIDIA H200"


def _near(text: str, before: str, expected: float, after: str) -> None:
    """A bound by the rates that the newest recorded run measured: they differ by half a percent from run to
    run."""
    found = re.search(rf"{re.escape(before)}([\d.]+){re.escape(after)}", text)
    assert found, (before, text)
    assert float(found[1]) == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"about": "qwen3-8b", "phase": "decode", "batch": "1", "seq": "4096"},
            (
                "Whole Qwen 3 8B: not recorded. At batch 1 at most ",
                "Another model, Llama 3 8B, is the most similar one recorded (parameters 8.03 B instead of "
                "8.19 B, layers 32 instead of 36, FFN size 14,336 instead of 12,288, vocabulary",
                "Llama 3 8B, sequence 512 instead of 4,096: fused-fp8, 2.37 ms",
            ),
        ),
        (
            {"about": "bert-small"},
            (
                "Whole BERT small: not recorded. At these rates it takes at least",
                "Intel Xeon instead of NVIDIA H200): ",
                "Another model, BERT base, is the most similar one recorded (parameters 109 M instead of",
                "). BERT base: fused, ",
            ),
        ),
        (
            {"about": "llama3.1-8b", "phase": "prefill"},
            ("Another model, Llama 3 8B, is the most similar one recorded (of the same sizes).",),
        ),
        (
            {"about": "qwen3-0.6b", "phase": "decode", "batch": "1"},
            (
                "Another model, Llama 3 8B, is the most similar one recorded (parameters 8.03 B instead of",
                "Llama 3 8B: fused-fp8, 2.37 ms",
                "of the speed that the rates of the device allow (at least 1.91 ms), without quantisation 91",
            ),
        ),
        (
            {"about": "mistral-7b", "phase": "prefill"},
            ("Another model, Llama 3 8B, is", "NVIDIA H100 80GB HBM3 instead of NVIDIA H200: "),
        ),
    ],
    ids=["another family", "recorded on a processor alone", "same sizes", "same case", "as large"],
)
def test_the_most_similar_recorded_model_is_named_as_another(draw, recorded, asked, says):
    at = draw("app", **asked)
    assert widget(at.selectbox, "device").value == H200
    for sentence in says:
        assert sentence in said(at.markdown)
    if asked["about"] == "qwen3-8b":
        _near(said(at.markdown), "Qwen 3 8B: not recorded. At batch 1 at most ", 269, " tokens/s")


@pytest.mark.parametrize(("phase", "stands_in"), [("decode", True), ("prefill", False)])
def test_no_model_of_another_phase_stands_in(monkeypatch, phase, stands_in):
    """The time of a prompt says nothing of a token."""
    question = Question("model:qwen3-8b", {"batch": 1, "seq": 512, "phase": "decode"}, "float16", H200)
    differs = {} if phase == "decode" else {"phase": ("decode", phase)}
    found = Found("a-run", question.case | {"phase": phase}, "float16", H200, 3, differs)
    monkeypatch.setattr(stand_in.nearest, "find", lambda asked: found)
    assert bool(stand_in.find(question, None)) == stands_in


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3-8b", "bert-base", "whisper-small-encoder"])
def test_no_other_model_stands_in(draw, recorded, name):
    """For one recorded on another GPU, for one recorded on this, and for one with no other of its layers."""
    assert "Another model" not in said(draw("app", about=name, on=H200).markdown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on", "bound"), [(H200, "takes at least 2."), ("AMD EPYC", "No bound: the rates of AMD EPYC in")]
)
def test_a_model_with_no_other_of_its_layers_says_so(draw, recorded, on, bound):
    """ "Whole Whisper small: not recorded." stood there alone."""
    at = draw("app", about="whisper-small-encoder", on=on)
    text = said(at.markdown)
    assert "Whole Whisper small: not recorded." in text and bound in text.partition("Whisper small: ")[2]
    if on == H200:
        _near(text.partition("Whisper small: ")[2], "takes at least ", 2.09, " ms")
    assert "Nearest: none. No model with layers of this structure" in said(at.caption)
