"""A short table as HTML: numbers right-aligned with three digits, and on each "n/a" the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape as quoted

import pandas as pd
import streamlit as st

from fusescope.charts import glossary, numbers
from pages._ui.widgets.text import escape

MOST = 300
"""Rows; a longer table is for st.dataframe, which draws only what is visible."""
_LONG = 70  # characters shown of a text; all of it on hover
_LINE = 18  # characters of a text beyond which it may take several lines
TALL = 560  # pixels after which a table scrolls under its headings
_PATH = 30  # the same of a text without spaces
Why = Mapping[str, str] | Callable[[int, str], str]
"""Why a cell is empty: by column, or by (row number, column)."""


def draw(
    data: pd.DataFrame,
    why: Why,
    key: str,
    height: int | None = None,
    link: str | None = None,
    about: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """The table; ``height``: pixels after which it scrolls; ``link``: a column of addresses of ours, each a
    link with the column's name; ``about``: by column, what its names mean, shown on hover."""
    right = [
        pd.api.types.is_numeric_dtype(data[c]) and not pd.api.types.is_bool_dtype(data[c])
        for c in data.columns
    ]
    side = ["fs-right" if r else "" for r in right]
    names = ["" if c == link else _heading(str(c)) for c in data.columns]
    head = "".join(f"<th class='{s}' scope='col'>{name}</th>" for name, s in zip(names, side, strict=True))
    rows = []
    for number, values in enumerate(data.itertuples(index=False, name=None)):
        cells = (
            f"<a href='{quoted(v)}' target='_self'>{escape(c)}</a>"
            if c == link
            else _named(v, about[c])
            if about and c in about
            else _cell(v, number, str(c), why)
            for v, c in zip(values, data.columns, strict=True)
        )
        rows.append("".join(f"<td class='{s}'>{cell}</td>" for cell, s in zip(cells, side, strict=True)))
    limit = f" style='max-height:{height}px'" if height else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    with st.container(key=f"table-{key}"):
        st.html(
            f"<div class='fs-table'{limit} tabindex='0'>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def facts(rows: Iterable[tuple]) -> None:
    """Short lines of (name, value) or (name, value, note) without borders."""
    columns, nowrap = ("fs-muted", "", "fs-muted"), "; white-space:nowrap"
    lines = (
        "".join(
            f"<td class='{c}' style='padding-right:1rem{nowrap * (len(str(v)) <= 12)}'>{escape(v)}</td>"
            for c, v in zip(columns, row, strict=False)
        )
        for row in rows
    )
    st.html(f"<table class='fs-small'>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")


def code(text: str) -> None:
    """A command or a setting to copy. Streamlit's own box loads a highlighter of 1.6 MB, even for plain text
    that is folded away."""
    st.html(f"<pre class='fs-code'>{escape(text)}</pre>")


def _text(value) -> str:
    """A whole number with its digits in groups; anything else as it is."""
    return f"{value:,}" if pd.api.types.is_integer(value) else str(value)


def _heading(name: str) -> str:
    """A column's name; a term of the glossary with its sentence on hover."""
    about = glossary.about(name)
    return f"<abbr title='{quoted(about)}'>{escape(name)}</abbr>" if about else escape(name)


def _named(value, about: Mapping[str, str]) -> str:
    text = about.get(value)
    return f"<abbr title='{quoted(text)}'>{escape(value)}</abbr>" if text else escape(value)


def _cell(value, number: int, column: str, why: Why) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        reason = why.get(column, "") if isinstance(why, Mapping) else why(number, column)
        return f"<abbr title='{quoted(reason or 'unknown')}'>{numbers.NA}</abbr>"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = numbers.three(value) if isinstance(value, float) else _text(value)
    shown = escape(text)
    if len(text) > _LONG:
        return f"<span class='fs-long' title='{quoted(text)}'>{shown}</span>"
    if len(text) > _PATH and " " not in text:  # model.encoder.layer.7.output: may break after a dot
        shown = shown.replace(".", ".<wbr>")
        return f"<span class='fs-lines'>{shown}</span>"
    return f"<span class='fs-lines'>{shown}</span>" if len(text) > _LINE and " " in text else shown
