"""Charts and tables with their downloads: CSV for each, images as PNG or SVG, "n/a" for the unknown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from fusescope.charts import glossary, numbers, template
from fusescope.charts.escape import shown
from fusescope.core.foreign.text import cell
from pages._ui.widgets import html_table, reading, screen

_IMAGE = "image_format"
CLICKED = {"clickmode": "event+select", "hovermode": "closest", "dragmode": "pan"}
"""What Streamlit's frontend gives a chart whose points can be clicked; without it, it is drawn twice."""
WIDE = "wide-chart"
Table = pd.DataFrame | Callable[[], pd.DataFrame]


def chart(
    fig: go.Figure,
    name: str,
    table: Table | None = None,
    pick: Callable[[str], None] | None = None,
    says: str = "",
    characters: int | None = None,
    wide: str | None = None,
) -> None:
    """A figure with its data as CSV under it; ``name`` is the file name of what is saved and the element's
    key. pick: called with ``customdata[1]`` of a point that is clicked. says: how to read it, on a click;
    else what ``reading`` knows of the chart of that title. characters: of a line of its
    subtitle, where it has less room than a page's result (``screen.characters``). wide: the key, WIDE and
    more, of a chart that a narrow screen scrolls sideways, without what stands under it."""
    image = st.session_state.get(_IMAGE, "png")
    key, settings = f"chart/{name}/{image}", template.config(name, image)
    clicked = {"on_select": lambda: _clicked(key, pick), "selection_mode": "points"} if pick else {}
    drawn = shown(fig, characters or screen.characters(), **(CLICKED if pick else {}))
    with st.container(key=wide) if wide else contextlib.nullcontext():
        st.plotly_chart(drawn, theme=None, key=key, config=settings, width="stretch", **clicked)
    says = says or reading.of(fig)
    if table is None and not says:
        return
    with st.container(
        horizontal=True, horizontal_alignment="right", gap="small", vertical_alignment="center"
    ):
        if says:
            with st.popover("What does this chart say?", type="tertiary", key=f"says/{name}"):
                st.markdown(says)
        if table is not None:
            csv(table, name)
            other = "svg" if image == "png" else "png"
            st.button(
                f"Images as {other.upper()}",
                key=f"{other}/{name}",
                type="tertiary",
                on_click=_image,
                args=(other,),
                help=f"Format of the images that the camera button saves; now {image.upper()}",
            )


def metrics(figures: Iterable[tuple], columns: Iterable | None = None) -> None:
    """A row of (label, value) or (label, value, help); without help, what the glossary says of the label."""
    figures = list(figures)
    for box, (label, value, *text) in zip(columns or st.columns(len(figures)), figures, strict=True):
        box.metric(label, value, help=text[0] if text else glossary.about(label))


def table(
    data: pd.DataFrame,
    name: str,
    csv_data: Table | None = None,
    height: int | str = "auto",
    why: html_table.Why | None = None,
    about: Mapping[str, Mapping[str, str]] | None = None,
    **settings,
) -> None:
    """A table with its CSV (``csv_data`` where the file holds more than is shown): three digits, unknown
    values "n/a".

    ``why`` says why a value is unknown, by column or by (row number, column); ``about``, by column, what its
    names mean. Both are shown on hover, ``about`` of tables that have ``why``, {} for no reason: they are
    drawn with the page, a data grid 0.3 s after it. On a narrow screen a table without ``settings`` is drawn
    as they are: its edge is shaded where it has more columns.
    """
    plain = why is not None or (screen.narrow() and not settings)
    if plain and len(data) <= html_table.MOST:
        tall = height if isinstance(height, int) else html_table.TALL
        html_table.draw(data, why or {}, name, tall, about=about)
        with st.container(horizontal=True, horizontal_alignment="right"):
            csv(data if csv_data is None else csv_data, name)
        return
    reals = [c for c in data.columns if pd.api.types.is_float_dtype(data[c])]
    counts = [c for c in data.columns if pd.api.types.is_integer_dtype(data[c])]
    styled = data.style.format(numbers.three, subset=reals, na_rep=numbers.NA) if reals else data.style
    st.dataframe(
        styled.format("{:,}", subset=counts, na_rep=numbers.NA) if counts else styled,
        hide_index=True,
        width="stretch",
        height=height,
        placeholder=numbers.NA,
        key=f"table/{name}",
        **settings,
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        csv(data if csv_data is None else csv_data, name)


def csv(data: Table, name: str) -> None:
    """A button that saves a table; the file is made when it is pressed, and so is the table where a function
    is given."""
    st.download_button(
        "CSV",
        data=lambda: _as_csv(data() if callable(data) else data),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"csv/{name}",
        on_click="ignore",
        type="tertiary",
        help="Download these numbers, unrounded",
    )


def _as_csv(data: pd.DataFrame) -> str:
    """The table as CSV, none of whose texts a spreadsheet takes for a formula."""
    safe = data.rename(columns=lambda name: cell(str(name)))
    for number in range(data.shape[1]):
        column = data.iloc[:, number]
        if not pd.api.types.is_numeric_dtype(column):
            safe.isetitem(number, column.map(_cell, na_action="ignore").astype(object))
    return safe.to_csv(index=False)


def _cell(value: object) -> object:
    return cell(value) if isinstance(value, str) else value


def listing(text: str, language: str | None, height: int, **settings) -> None:
    """Source, assembly or a log, at most ``height`` pixels tall. The box around it scrolls, not the code
    itself, which no key reaches."""
    with st.container(height=height, border=False):
        st.code(text, language=language, wrap_lines=True, **settings)


def folded(label: str, key: str, draw: Callable[[], None], expanded: bool = False) -> None:
    """An expander that is drawn when it is opened: until then its content takes server and browser no time.
    Then it is drawn with the rest, so that its widgets keep their values while it is closed again."""
    drawn = f"{key}/drawn"
    if key not in st.session_state or (expanded and drawn not in st.session_state):
        st.session_state[key] = expanded  # as an argument that changes it would make another expander
    box = st.expander(label, key=key, on_change="rerun")
    if box.open or drawn in st.session_state:
        st.session_state[drawn] = True
        with box:
            draw()


def note(text: str) -> None:
    """A quiet line."""
    st.caption(text)


def _clicked(key: str, pick: Callable[[str], None]) -> None:
    for point in st.session_state[key]["selection"]["points"][:1]:
        pick(point["customdata"][1])


def _image(form: str) -> None:
    st.session_state[_IMAGE] = form
