"""The URL's readers, and what travels in links."""

import pytest

from pages._ui.app import url
from pages._ui.widgets.text import md


def test_readers_name_the_rule():
    assert url.whole(1, 9)("7") == 7 and url.one_of(["a", "b"])("b") == "b"
    for read, text, rule in (
        (url.whole(1, 9), "x", "an integer"),
        (url.whole(1, 9), "10", "from 1 to 9"),
        (url.one_of(["a"]), "c", "must be a"),
    ):
        with pytest.raises(ValueError, match=rule):
            read(text)


def test_text_of_a_run_stays_text():
    assert md("![x](http://e) <b>") == "\\!\\[x\\]\\(http\\:\u2060//e\\) \\<b\\>" and md(None) == ""


def _warnings(at) -> str:
    return " ".join(w.value for w in at.warning)


@pytest.mark.parametrize(
    "page", ["app", "attention", "kernels", "models", "masks", "build", "fusion", "runs"]
)
def test_a_parameter_that_no_setting_has_is_said_to_be_ignored(draw, page):
    assert "Ignored q=what from the URL" in _warnings(draw(page, q="what")).replace("\\", "")


@pytest.mark.parametrize("page", ["attention", "kernels", "models", "masks", "build", "fusion", "runs"])
def test_a_page_without_parameters_ignores_nothing(draw, page):
    assert "Ignored" not in _warnings(draw(page))


def test_what_no_longer_fits_after_a_click_is_not_said_to_come_from_the_url(draw):
    at = draw("kernels", op="attention", dtype="bfloat16", impl="cpu,eager")
    assert "Ignored" not in _warnings(at)
    at.session_state["kernels/op"] = "sddmm"
    assert "Ignored" not in _warnings(at.run())


def test_a_number_out_of_bounds_is_refused_where_it_is_typed(draw):
    at = draw("kernels", op="attention", impl="cpu,eager")
    at.number_input(key="kernels/attention/heads").set_value(-5).run()
    assert "eads must be an integer from 1 to 4096, not -5" in " ".join(e.value for e in at.error).replace(
        "\\", ""
    )
    assert at.button(key="kernels/run").disabled
