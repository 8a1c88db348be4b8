"""A link never runs code: what a URL names is shown and must be confirmed before Run takes it."""

import numpy as np
import pytest
from drawn_page import calm, said

from fusescope.jobs import submit


def press(at, label):
    calm(next(b for b in at.button if b.label == label).click().run())


def disabled(at, label):
    """Whether the button cannot be pressed, or is not there."""
    return all(b.disabled for b in at.button if b.label == label)


@pytest.fixture
def asked(monkeypatch):
    """What was submitted; nothing is started."""
    taken = []
    monkeypatch.setattr(submit, "submit", lambda kind, spec, **_: taken.append((kind, spec)) or "")
    return taken


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def fast(a, b):\n    return a + b  # this line\n\n\ndef other(a, b):\n    return b + a\n"
    )
    return file


def test_a_linked_function_is_shown_with_its_source_and_runs_only_when_confirmed(draw, asked, mine):
    at = draw("kernels", op="add", own=f"{mine}:fast", impl=f"eager,{mine}:fast", baseline=f"{mine}:fast")
    assert disabled(at, "Run") and "confirm what the link names" in said(at.error).lower()
    assert any("this line" in c.value for c in at.code) and str(mine) in said(at.markdown)
    calm(at.run())  # another drawing changes nothing
    assert disabled(at, "Run")
    press(at, "Use it")
    assert not at.error and not any(b.label == "Use it" for b in at.button)
    press(at, "Run")
    assert asked[0][1]["impls"] == ["eager", f"{mine}:fast"] and asked[0][1]["baseline"] == f"{mine}:fast"


def test_what_was_typed_is_asked_for_neither_now_nor_by_the_page_s_own_address(draw, asked, mine):
    at = draw("kernels", op="add")
    next(t for t in at.text_input if t.label == "file.py:function").set_value(f"{mine}:fast")
    calm(at.run())
    assert not disabled(at, "Run") and not any(b.label == "Use it" for b in at.button)


def test_typing_beside_a_linked_function_does_not_confirm_it(draw, mine):
    at = draw("kernels", op="add", own=f"{mine}:fast")
    box = next(t for t in at.text_input if t.label == "file.py:function")
    box.set_value(f"{mine}:other {mine}:fast")
    calm(at.run())
    error = said(at.error)
    assert disabled(at, "Run") and f"{mine}:fast" in error and f"{mine}:other" not in error
    box = next(t for t in at.text_input if t.label == "file.py:function")
    box.set_value(f"{mine}:other")
    calm(at.run())
    assert not disabled(at, "Run")


def test_a_missing_file_is_not_confirmed_by_being_missing(draw, mine):
    text = mine.read_text()
    mine.unlink()
    at = draw("kernels", op="add", own=f"{mine}:fast")
    assert disabled(at, "Run") and "no file" in said(at.error)
    mine.write_text(text)
    calm(at.run())
    assert disabled(at, "Run") and any(b.label == "Use it" for b in at.button)


def test_a_drawing_that_was_cut_short_leaves_the_mark(draw, mine, monkeypatch):
    """The first drawing may end between reading the URL and asking."""
    from pages._ui.forms import linked

    with monkeypatch.context() as cut:
        cut.setattr(linked, "ask", lambda *a: None)
        cut.setattr(linked, "refuse", lambda *a: None)
        at = draw("kernels", op="add", own=f"{mine}:fast")
    calm(at.run())
    assert disabled(at, "Run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "query", "run"),
    [
        ("kernels", {"op": "attention", "mask": "file:{npy}", "seq": "8"}, "Run"),
        ("models", {"checkpoint": "{folder}"}, "Run"),
        ("masks", {"view": "Scores", "s_checkpoint": "{folder}"}, "Analyse attention scores"),
        ("masks", {"view": "Scores", "s_input": "tokens", "s_file": "{npy}"}, "Analyse attention scores"),
        ("models", {"view": "Accuracy", "checkpoint": "{folder}"}, "Check accuracy"),
        ("profiler", {"do": "import", "file": "{npy}"}, "Import"),
        ("profiler", {"do": "now", "op": "attention", "mask": "file:{npy}", "seq": "8"}, "Profile"),
        ("fusion", {"mask": "file:{npy}", "seq": "8"}, "Check and time"),
    ],
)
def test_every_path_of_a_link_waits(draw, tmp_path, page, query, run):
    npy = tmp_path / "m.npy"
    np.save(npy, np.ones((8, 8), bool))
    query = {k: v.format(npy=npy, folder=tmp_path) for k, v in query.items()}
    at = draw(page, **query)
    assert any(b.label == "Use it" for b in at.button) and disabled(at, run)
    assert str(tmp_path) in said(at.markdown)
    press(at, "Use it")
    assert not any(b.label == "Use it" for b in at.button)
    assert "confirm what the link names" not in said(at.error).lower()


def browser(monkeypatch, name):
    """Be the browser that has this cookie, under the mask that the server gives it each time."""
    from pages._ui.guard import confirmed

    cookies = {"_streamlit_xsrf": f"2|00000000|{name * 16}|1795454294"} if name else {}
    monkeypatch.setattr(confirmed.st, "context", type("Context", (), {"cookies": cookies}))
    return confirmed


def test_a_reload_does_not_ask_again_for_the_same_content(monkeypatch, mine):
    confirmed = browser(monkeypatch, "ab")
    path, shown = f"{mine}:fast", confirmed.content(mine)
    assert not confirmed.remembered(path, shown)
    confirmed.remember(path, shown)
    assert confirmed.remembered(path, shown) and not confirmed.remembered(f"{mine}:other", shown)
    masked = {"_streamlit_xsrf": f"2|01010101|{'aa' * 16}|1795454294"}
    monkeypatch.setattr(confirmed.st, "context", type("Context", (), {"cookies": masked}))
    assert confirmed.remembered(path, shown), "the same token under another mask"
    mine.write_text(mine.read_text() + "# changed")
    assert not confirmed.remembered(path, confirmed.content(mine))
    for other in ("cd", None):
        browser(monkeypatch, other)
        assert not confirmed.remembered(path, shown)
        confirmed.remember(path, "")
    assert not confirmed.content(mine.parent), "a folder is asked about each time"


def test_what_a_browser_confirmed_is_taken_in_a_new_session(draw, mine, monkeypatch):
    from pages._ui.guard import confirmed

    monkeypatch.setattr(confirmed, "_browser", lambda: "one")
    at = draw("kernels", op="add", own=f"{mine}:fast")
    press(at, "Use it")
    again = draw("kernels", op="add", own=f"{mine}:fast")
    assert not disabled(again, "Run") and not any(b.label == "Use it" for b in again.button)
    mine.write_text(mine.read_text().replace("this line", "another line"))
    assert disabled(draw("kernels", op="add", own=f"{mine}:fast"), "Run")
