"""A function of the user's own: found in its file, its operator guessed, refused with one sentence at the
field, and submitted against eager by one button."""

import dataclasses

import folders
import pytest
import synthetic
from drawn_page import calm, query, said, widget

from fusescope.jobs import submit
from fusescope.ops.common.user import Signature
from pages._ui.kernels import own_guess

FIELD, BUTTON = "your Python file", "Compare mine with eager"


@pytest.fixture
def asked(monkeypatch, profiles):
    """What was submitted, in order: each is a finished run."""
    found = []

    def stand_in(kind, spec, title=""):
        found.append(submit.validate(kind, spec))
        run = synthetic.run(f"20261120-15{len(found):02d}00-bench-00000{len(found)}", spec=found[-1])
        case, dtype = found[-1]["cases"][0], found[-1]["dtype"]
        records = [
            dataclasses.replace(synthetic.ok(impl, ms, 1.0, case, "cpu"), op=spec["op"], dtype=dtype)
            for impl, ms in zip(found[-1]["impls"], (1.0, 2.0), strict=True)
        ]
        folders.write(profiles, run, records, samples=False)
        return run.id

    monkeypatch.setattr(submit, "submit", stand_in)
    return found


@pytest.fixture
def write(tmp_path):
    def make(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return make


def fill(at, text):
    widget(at.text_input, FIELD).set_value(text)
    return calm(at.run())


def press(at, label=BUTTON):
    widget(at.button, label).click()
    return calm(at.run())


def test_a_file_and_a_click_are_enough(draw, asked, write):
    file = write("def softmax(x):\n    return x\n")
    at = fill(draw("kernels", do="own"), file)
    assert widget(at.selectbox, "operator").value == "softmax"
    assert "softmax(x) as Softmax at rows=4096, cols=1024, float32" in said(at.caption)
    assert "function" not in [box.label for box in at.selectbox]
    at = press(at)
    [spec] = asked
    assert (spec["op"], spec["impls"], spec["baseline"]) == ("softmax", ["eager", f"{file}:softmax"], "eager")
    assert query(at)["own"] == f"{file}:softmax" and query(at)["op"] == "softmax" and "run" in query(at)
    assert "mine.py:softmax is correct" in said(at.markdown)


def test_the_field_and_the_button_in_one_go(draw, asked, write):
    at = draw("kernels", do="own")
    widget(at.text_input, FIELD).set_value(write("def attention(q, k, v):\n    return q\n"))
    at = press(at)
    assert [spec["op"] for spec in asked] == ["attention"] and asked[0]["cases"][0]["mask"] == "full"


@pytest.mark.parametrize(
    ("text", "typed", "sentence"),
    [
        (None, "{file}", "no file "),
        ("def softmax(x) return x", "{file}", "mine.py is no Python"),
        ("softmax = 1", "{file}", "defines no function that can be called"),
        ("def softmax(x): ...", "{file}:hardmax", "has no function 'hardmax'; it has softmax"),
        (
            "def softmax(q, k, v): ...",
            "{file}",
            "softmax(q, k, v) does not fit Softmax, which is called as softmax(x)",
        ),
        ("def softmax(x): ...", "softmax", "write the path of a Python file, path/to/file.py, not 'softmax'"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_submitted(
    draw, asked, write, tmp_path, text, typed, sentence
):
    file = write(text) if text else str(tmp_path / "mine.py")
    at = press(fill(draw("kernels", do="own"), typed.format(file=file)))
    assert [sentence.lower() in e.lower() for e in said(at.error).splitlines()] == [True]
    assert not asked
    if text:  # mended, the next click takes it
        write("def softmax(x): ...")
        fill(at, file)
        press(at)
        assert not at.error and len(asked) == 1


def test_an_empty_field_says_what_is_missing(draw, asked):
    at = press(draw("kernels", do="own"))
    assert "Type the path of the Python file" in said(at.warning) and not asked


def test_of_several_functions_one_is_taken_and_another_may_be_chosen(draw, asked, write):
    file = write("def helper(a, b): ...\ndef layer_norm(x, weight, bias): ...\ndef my_add(a, b): ...\n")
    at = fill(draw("kernels", do="own"), file)
    assert widget(at.selectbox, "function").value == "layer_norm"
    assert widget(at.selectbox, "operator").value == "layernorm"
    widget(at.selectbox, "function").set_value("my_add")
    at = calm(at.run())
    assert widget(at.selectbox, "operator").value == "add"
    widget(at.selectbox, "operator").set_value("gemm")  # the guess does not come back
    at = press(calm(at.run()))
    assert asked[0]["op"] == "gemm" and asked[0]["impls"][1] == f"{file}:my_add"


def test_a_link_to_a_function_runs_only_after_it_was_confirmed(draw, asked, write):
    file = write("def softmax(x):\n    return x  # this line\n")
    at = press(draw("kernels", do="own", own=f"{file}:softmax", op="softmax"))
    assert not asked and "confirm what the link names" in said(at.error).lower()
    assert any("this line" in c.value for c in at.code)
    at = press(press(at, "Use it"))
    assert len(asked) == 1 and not at.error


def test_a_link_to_a_file_alone_is_ignored(draw, asked, write):
    file = write("def softmax(x): ...")
    at = draw("kernels", do="own", own=file)
    assert "must be path/to/file.py:function" in said(at.warning)
    press(at)
    assert not asked


def test_the_result_of_another_function_is_not_shown(draw, asked, write):
    at = press(fill(draw("kernels", do="own"), write("def softmax(x): ...")))
    assert "mine.py:softmax is correct" in said(at.markdown)
    at = fill(at, write("def softmax(x): ...", "other.py"))
    assert "is correct" not in said(at.markdown) and "other" in query(at)["own"]


def test_the_other_mode_takes_the_function_and_gives_it_back(draw, asked, write):
    file = write("def softmax(x): ...")
    at = fill(draw("kernels", do="own"), file)
    at.segmented_control[0].set_value("Compare implementations")
    at = calm(at.run())
    assert widget(at.selectbox, "operator").value == "softmax" and "do" not in query(at)
    assert widget(at.multiselect, "implementations").value == ["eager", f"{file}:softmax"]
    at.segmented_control[0].set_value("Check my function")
    at = press(calm(at.run()))
    assert asked[0]["impls"] == ["eager", f"{file}:softmax"] and asked[0]["op"] == "softmax"


def test_an_example_is_written_and_used(draw, asked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    press(press(draw("kernels", do="own"), "Write an example and use it"))
    assert asked[0]["op"] == "softmax" and asked[0]["impls"][1].endswith("my_softmax.py:mine")


@pytest.mark.parametrize(
    ("function", "stem", "op"),
    [
        (Signature("softmax", ("x",), 1), "mine", "softmax"),
        (Signature("by_hand", ("x",), 1), "my_softmax", "softmax"),
        (Signature("flash", ("q", "k", "v"), 3), "k", "attention"),
        (Signature("decode_attention", ("q", "k", "v", "lengths"), 4), "k", "attention_decode"),
        (Signature("my_matmul", ("x", "y"), 2), "k", "gemm"),
        (Signature("batched_mm", ("a", "b"), 2), "k", "gemm"),
        (Signature("layer_norm", ("x", "w", "b"), 3), "k", "layernorm"),
        (Signature("gelu", ("x", "bias"), 2), "k", "bias_gelu"),
        (Signature("odd", tuple("abcdefghijkl"), 12), "k", None),
    ],
)
def test_the_operator_is_guessed_by_name_and_parameters(function, stem, op):
    assert own_guess.best([function], stem) == (function, op)


def test_an_operator_that_was_chosen_first_is_kept(draw, asked, write):
    """The path came after the choice, and what was guessed took its place: another operator would have been
    measured than the one on the screen a moment before."""
    at = draw("kernels", do="own")
    widget(at.selectbox, "operator").set_value("layernorm").run()
    at = fill(at, write("def bias_gelu(x, bias):\n    return x\n"))
    assert widget(at.selectbox, "operator").value == "layernorm"
    at = fill(at, write("def softmax(x):\n    return x\n", "other.py"))
    assert widget(at.selectbox, "operator").value == "softmax", "the next function is guessed again"
