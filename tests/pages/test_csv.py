"""CSV files of the pages: texts of runs are no formulas to a spreadsheet."""

import pandas as pd
import pytest

from fusescope.core.foreign.text import cell, printable
from pages._ui.widgets import elements


@pytest.mark.parametrize("text", ["=1+1", "+a", "-cmd", "@x", "\tx", "\rx", "\n=x", " =1", "＝1", "--1", "-"])
def test_a_formula_gets_an_apostrophe(text):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a", "a=b", "-1", "+1.5", "-.5e-3", "1-2", "v2_tiles"])
def test_numbers_and_plain_texts_stay(text):
    assert cell(text) == text


def test_a_button_saves_harmless_cells(monkeypatch):
    saved = {}
    monkeypatch.setattr(elements.st, "download_button", lambda label, **given: saved.update(given))
    data = pd.DataFrame({"=h": ["=1", "-2", None], "n": [-1, 2, 3], "c": pd.Categorical(["@x", "y", "@x"])})
    elements.csv(data, "name")
    assert saved["data"]() == "'=h,n,c\n'=1,-1,'@x\n-2,2,y\n,3,'@x\n"
    assert list(data.columns) == ["=h", "n", "c"]


def test_text_for_a_terminal_has_no_control_characters():
    assert printable("a\x1b]52;c;eA==\x07b\r\x9b2J\u202e\ud800 é\n\tz") == (
        "a\\x1b]52;c;eA==\\x07b\\r\\x9b2J\\u202e\\ud800 é\n\tz"
    )
