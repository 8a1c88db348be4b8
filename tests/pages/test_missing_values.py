"""Where nothing is known, the page says why."""

import pandas as pd
import pytest

from fusescope.charts import tables
from fusescope.core.records import Record, Time, Times
from pages._ui.widgets import html_table

OK = Record(
    "add", "eager", {"n": 8}, "float32", "cpu", "ok", time_ms=Times(eager=Time(1.0, 0.9, 1.1, 9, True))
)
WRONG = Record("add", "mine", {"n": 8}, "float32", "cpu", "wrong", reason="max abs error 3 <b>")


@pytest.fixture
def html(monkeypatch):
    shown = []
    monkeypatch.setattr(html_table.st, "html", shown.append)
    return shown


def test_every_empty_cell_of_the_records_has_a_reason(html):
    html_table.draw(tables.readable([OK, WRONG], "eager"), tables.why([OK, WRONG], "eager"), "t")
    cells = html[0].split("<abbr ")[1:]
    assert len(cells) >= 10 and not any(c.startswith("title='unknown'") for c in cells)
    assert "title='wrong: max abs error 3 &lt;b&gt;'" in html[0] and "<b>" not in html[0]
    assert "title='the baseline itself'" in html[0] and "title='cold times were not requested'" in html[0]


def test_numbers_stand_at_the_right_with_three_digits(html):
    data = pd.DataFrame({"name": ["<i>"], "ms": [1.23456], "count": [12], "same": [True]})
    html_table.draw(data, {}, "t")
    assert "<td class='fs-right'>1.23</td>" in html[0] and "<td class='fs-right'>12</td>" in html[0]
    assert "<td class=''>&lt;i&gt;</td>" in html[0] and "<td class=''>yes</td>" in html[0]


def test_whole_numbers_have_their_digits_in_groups_and_links_lead_somewhere(html):
    data = pd.DataFrame(
        {"open": ["/runs?run=1&b='"], "tiles": [4096], "maybe": pd.array([35840], dtype="Int64")}
    )
    html_table.draw(data, {}, "t", link="open")
    assert "<td class='fs-right'>4,096</td>" in html[0] and "<td class='fs-right'>35,840</td>" in html[0]
    assert "<a href='/runs?run=1&amp;b=&#x27;' target='_self'>open</a>" in html[0]


def test_a_text_that_is_longer_than_its_column_takes_several_lines(html):
    """It was cut at the edge of the window: "did not co"."""
    texts = ["did not converge, busy machine", "v1_rowwise_of_many_parts", "a long reason " * 8]
    html_table.draw(pd.DataFrame({"note": texts}), {}, "t")
    assert "<span class='fs-lines'>did not converge, busy machine</span>" in html[0]
    assert "<td class=''>v1_rowwise_of_many_parts</td>" in html[0], "a name is one word"
    assert "<span class='fs-long' title='a long reason" in html[0]
