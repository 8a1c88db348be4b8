"""Text of runs is text wherever it is shown: no links in Markdown, charts and reports."""

import re

import plotly.graph_objects as go
import pytest

from fusescope.charts import report
from fusescope.charts.escape import unlinked
from fusescope.core.records import Record, Run, Time, Times
from pages._ui.widgets.text import md

BAD = '<a href="https://evil.example/{0}">{0}</a><script>{0}</script> https://evil.example www.evil.example'


@pytest.mark.parametrize(
    "text",
    ["https://evil.example", "HTTP://e.example", "www.evil.example", "me@evil.example", ":material/home:"],
)
def test_what_markdown_makes_links_and_icons_of_is_parted(text):
    """Streamlit's Markdown links addresses though every character of them is escaped; this was seen in
    Chromium."""
    shown = md(f"**{text}**").replace("\\", "")
    assert shown.replace("\u2060", "") == f"**{text}**" and text not in shown


@pytest.mark.parametrize("text", ["bigbird:window=64,seed=1", "a/b.py:function", "12 @ 3 GHz", "12:30"])
def test_other_text_stays_as_it_is(text):
    assert md(text).replace("\\", "") == text


def test_a_figure_has_no_links():
    fig = go.Figure(go.Bar(x=["<A href='https://e.example'>x</A>", "b<c"], y=[1, 2]))
    fig.update_layout(title_text="<b>ours</b> <a href='https://e.example'>x</a>")
    clean = unlinked(fig)
    assert not re.search(r"(?i)<\s*/?a\b", clean.to_json().replace("\\u003c", "<"))
    assert "<b>ours</b>" in clean.layout.title.text and clean.data[0].x[1] == "b<c"
    plain = go.Figure(go.Bar(x=["a"], y=[1]))
    assert unlinked(plain) is plain


@pytest.mark.parametrize("cases", [1, 3])
def test_a_report_links_and_runs_nothing_that_a_run_says(cases):
    def record(impl, n, **values):
        time = Times(eager=Time(1.0, 0.9, 1.1, 10, True))
        case = {"n": n, "mask": BAD.format("mask")}
        kind = {"status": "ok", "time_ms": time} | values
        return Record("add", impl, case, "float16", BAD.format("device"), **kind)

    records = [record(i, n) for n in range(cases) for i in ("eager", BAD.format("impl"))]
    records.append(record("x", 0, status="wrong", time_ms=None, reason=BAD.format("reason")))
    spec = {"op": "add", "baseline": BAD.format("impl"), "dtype": BAD.format("dtype")}
    about = {k: BAD.format(k) for k in ("title", "notes")}
    env = {"device_name": BAD.format("name")}
    run = Run(
        "20260101-000000-bench-aaaaaa", "bench", spec, "failed", BAD.format("why"), environment=env, **about
    )
    text = report.page(run, records, (), BAD.format("command"))
    body = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)  # plotly's own library
    body = body.replace("\\u003c", "<").replace("\\u003e", ">")
    assert not re.search(r"(?i)<\s*a\b", body) and "evil.example/title" in body
    assert not re.search(r"<script>(?:impl|mask|title|reason|name|device)", text)
