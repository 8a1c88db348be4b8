"""The URL's readers, and what travels in links."""

from types import SimpleNamespace

import pytest
from drawn_page import calm

from pages._ui.app import url
from pages._ui.forms import fields
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["app", "attention", "kernels", "models", "masks", "build", "fusion", "runs"]
)
def test_a_parameter_that_no_setting_has_is_said_to_be_ignored(draw, page):
    assert "Ignored q=what from the URL" in _warnings(draw(page, q="what")).replace("\\", "")


@pytest.mark.slow
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
    at.text_input(key="kernels/heads/typed").set_value("-5").run()
    assert "eads must be an integer from 1 to 4,096, not -5" in " ".join(e.value for e in at.error).replace(
        "\\", ""
    )
    assert at.button(key="kernels/run").disabled


class _Browser:
    """What the URL's state needs of Streamlit: a session, and the query of the browser's address."""

    def __init__(self, **query: str):
        self.session_state, self.query_params = {}, _Params(query)


class _Params(dict):
    cut = False

    def from_dict(self, given):
        if self.cut:
            raise InterruptedError("a click cuts the drawing short")
        self.clear()
        self.update(given)


def test_a_click_that_cuts_the_last_step_of_a_drawing_keeps_what_was_chosen(monkeypatch):
    """The click may already carry the address that this drawing has just made."""
    browser = _Browser(seq="9")
    monkeypatch.setattr(url, "st", browser)
    state = url.State("masks")
    state.seed("view", "Tiles")
    state.keep("seq", 9)
    state.keep("mask", "full")
    browser.query_params.cut = True
    with pytest.raises(InterruptedError):
        state.commit()
    browser.session_state["masks/view"] = "Scores"
    browser.query_params = _Params({"seq": "9", "mask": "full"})
    again = url.State("masks")
    again.seed("view", "Tiles")
    assert not again.opened and browser.session_state["masks/view"] == "Scores"


@pytest.mark.parametrize("back", [True, False])
def test_the_back_button_is_followed_at_once_and_a_late_click_is_not(monkeypatch, back):
    browser = _Browser()
    monkeypatch.setattr(url, "st", browser)
    first = url.State("masks")
    first.seed("view", "Tiles")
    first.keep("view", "Storage", "Tiles")
    browser.session_state["masks/view"] = "Storage"
    first.commit()
    monkeypatch.setattr(url, "get_script_run_ctx", lambda **_: SimpleNamespace(is_history_navigation=back))
    browser.query_params = _Params({})
    again = url.State("masks")
    again.seed("view", "Tiles")
    assert browser.session_state["masks/view"] == ("Tiles" if back else "Storage")


def test_settings_that_a_refusal_cut_off_come_back(draw, monkeypatch):
    """A file that cannot be read for a moment, half-way through the form: the settings below are drawn again
    as they were, from the URL."""
    at = draw("kernels", op="add", impl="cpu,eager", cache="warm", n="65536")
    failing, dtype = [True], fields.pick

    def pick(state, name, *args, **settings):
        if name == "dtype" and failing:
            raise OSError("the disk is gone")
        return dtype(state, name, *args, **settings)

    monkeypatch.setattr(fields, "pick", pick)
    at = at.run()
    assert "disk is gone" in at.error[0].value
    failing.clear()
    at = calm(at.run())
    assert at.session_state["kernels/add/n"] == 65536 and at.session_state["kernels/cache"] == "warm"
    assert (at.query_params["n"], at.query_params["cache"]) == ("65536", "warm")


def test_a_share_may_be_typed_without_its_decimals(draw):
    at = draw("kernels", op="add", impl="cpu,eager", within="5")
    assert at.session_state["kernels/within"] == 5.0 and not at.warning
