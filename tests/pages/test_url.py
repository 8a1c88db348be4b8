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
    assert md("![x](http://e) <b>") == r"\!\[x\]\(http\://e\) \<b\>" and md(None) == ""
