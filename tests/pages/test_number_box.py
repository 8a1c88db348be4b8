"""Boxes for numbers: sizes as people write them, and nothing runs while one shows what is no number."""

import pytest
from drawn_page import calm, query, said

BOX = "kernels/seq/typed"


@pytest.fixture
def started(monkeypatch):
    """The specifications that were submitted."""
    from pages._ui.answer import matching

    found = []
    monkeypatch.setattr(matching.submit, "submit", lambda kind, spec: found.append(spec) or "none")
    monkeypatch.setattr(matching, "follow", lambda page, run_id: None)
    return found


@pytest.fixture
def form(draw, profiles):
    return draw("kernels", op="attention", impl="cpu,eager", baseline="eager", seq="64")


@pytest.mark.parametrize(("typed", "number"), [("16k", 16384), ("2**10", 1024), ("1e3", 1000), (" 77 ", 77)])
def test_a_size_is_taken_as_it_is_written_and_shown_as_digits(form, typed, number):
    at = calm(form.text_input(key=BOX).set_value(typed).run())
    assert at.text_input(key=BOX).value == str(number) and query(at)["seq"] == str(number)
    assert at.select_slider(key="kernels/seq/slider").value == number
    assert not at.error and not at.button(key="kernels/run").disabled


@pytest.mark.parametrize("typed", ["12abc", "abc", "", "1.5", "-5", "1e9"])
def test_what_is_no_such_number_keeps_run_back_and_says_why(form, started, typed):
    at = calm(form.text_input(key=BOX).set_value(typed).run())
    assert at.text_input(key=BOX).value == typed, "what was typed stays, to be mended"
    why = "sequence must be an integer from 1 to"
    assert why in said(at.error).lower() and why in said(at.caption).lower()
    assert at.button(key="kernels/run").disabled and not started
    calm(at.run())
    assert at.button(key="kernels/run").disabled, "until it is mended"
    calm(at.text_input(key=BOX).set_value("64").run())
    assert not at.button(key="kernels/run").disabled and not at.error


def test_the_slider_replaces_what_was_refused(form):
    at = calm(form.text_input(key=BOX).set_value("12abc").run())
    calm(at.select_slider(key="kernels/seq/slider").set_value(128).run())
    assert at.text_input(key=BOX).value == "128" and not at.error


@pytest.mark.parametrize("key", ["kernels/run", "empty/run"])
@pytest.mark.parametrize(("typed", "runs"), [("12abc", []), ("96", [96])])
def test_a_click_right_after_typing_runs_what_was_typed_or_nothing(form, started, key, typed, runs):
    """A browser sends the text when the box is left, by the click itself: both may come at once."""
    form.text_input(key=BOX).set_value(typed)
    form.button(key=key).click()
    at = calm(form.run())
    assert [spec["cases"][0]["seq"] for spec in started] == runs
    assert bool(runs) != ("12abc" in said(at.error))


def test_a_box_that_may_be_empty_says_so_by_its_placeholder(form):
    box = "kernels/attention/seq_k/typed"
    at = calm(form.text_input(key=box).set_value("2k").run())
    assert query(at)["seq_k"] == "2048"
    calm(at.text_input(key=box).set_value("2x").run())
    assert at.button(key="kernels/run").disabled and "seq_k" not in query(at)
    calm(at.text_input(key=box).set_value("").run())
    assert not at.button(key="kernels/run").disabled and "seq_k" not in query(at)


def test_a_swept_number_is_read_the_same_way(draw, profiles):
    at = draw("kernels", op="attention", impl="cpu,eager", sweep="seq", seqs="1k,2**7")
    assert not at.warning and not at.error and "2 cases" in said(at.caption)


def test_a_parameter_of_a_mask_is_refused_too(draw, profiles):
    at = draw("kernels", op="attention", impl="cpu,eager", mask="longformer", seq="512")
    box = "kernels/attention/mask/longformer/window/typed"
    key = next(t.key for t in at.text_input if t.key.endswith("longformer/window/typed"))
    calm(at.text_input(key=key).set_value("8k8").run())
    assert at.button(key="kernels/run").disabled and "window must be" in said(at.error).lower(), box


def test_no_recorded_run_is_for_settings_that_are_not_valid(draw, recorded):
    at = draw("kernels", op="softmax")
    at.text_input(key="kernels/rows/typed").set_value("12abc").run()
    assert "Recorded for these settings" not in said(at.caption)
    assert "until the settings of the form are valid" in said(at.caption)


def test_no_recorded_run_is_of_a_model_whose_settings_are_not_valid(draw, recorded):
    at = draw("models", model="gpt2", batch="1", seq="128", dtype="float16", phase="prefill")
    assert "Recorded for these settings" in said(at.caption)
    at.text_input(key="models/batch/typed").set_value("12abc").run()
    assert "Recorded for these settings" not in said(at.caption)
    assert "until the settings of the form are valid" in said(at.caption)
