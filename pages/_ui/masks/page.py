"""The Masks page: what a mask looks like, alone or compared with another one."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st
from PIL import Image

from fusescope import masks
from fusescope.charts.escape import shown
from fusescope.charts.masks import picture, thumbnail
from fusescope.core.schema import REQUIRED, Parameter
from pages._ui.app import cached_chart, redraw, url
from pages._ui.forms import fields, mask_files, mask_picker, run_panel
from pages._ui.masks import facts, stats, upload, views
from pages._ui.widgets import style
from pages._ui.widgets.text import md

_SEQS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_LONGEST = 1 << 17
_START = "sliding_window"
_THUMB = 40  # pixels of a gallery picture
_GALLERY_SEQ = 256


@dataclass(frozen=True)
class Choice:
    """What is looked at: the masks (one or two texts) on seq_q × seq_k."""

    texts: tuple[str, ...]
    seq_q: int
    seq_k: int


def form(state: url.State) -> Choice | None:
    """Sizes and masks; None while no mask is chosen or a box shows what is refused."""
    problems: list[str] = []
    texts: list[str | None] = []
    seq_q = _size(state, "seq", "queries", 4096)
    equal = st.toggle("keys = queries", key=state.seed("square", "seq_k" not in state.query))
    seq_k = seq_q if equal else _size(state, "seq_k", "keys", seq_q)
    if not equal:
        state.keep("seq_k", seq_k)
    for slot, start, label in (("mask", _START, "mask"), ("with", mask_picker.NONE, "Compare with")):
        with run_panel.collect(problems):
            texts.append(mask_picker.choose(state, slot, seq_k, start, label)[0])
    with run_panel.collect(problems):
        fields.refuse(state)
    with st.expander("Upload a matrix"):
        upload.draw(partial(mask_picker.take_file, "masks", "mask"))
    for problem in problems:
        st.error(md(problem))
    if problems or texts[0] is None:
        return None
    own = mask_files.shape(texts[0], mask_files.stamp(texts[0]))
    if own and own != (seq_q, seq_k):
        st.caption(f"Sizes are those of the file: {own[0]:,} queries × {own[1]:,} keys.")
        seq_q, seq_k = own
    stats.check(seq_q, seq_k)
    return Choice(tuple(text for text in texts if text), seq_q, seq_k)


def gallery(chosen: str) -> None:
    """Every mask with its defaults: a button under its small picture, both of which choose it; ``chosen`` is
    underlined, and described below."""
    mark = f".st-key-gallery-{chosen} button {{ border-bottom: 2px solid #0072B2 }}"
    st.html(f"<style>{_pictures_of_buttons(style.theme())}{mark}</style>")
    with st.container(horizontal=True, gap="xsmall", key="gallery"):
        for name in masks.names():
            st.button(
                name.replace("_", " "),
                key=f"gallery/{name}",
                type="tertiary",
                width=86,
                on_click=mask_picker.pick,
                args=("masks", "mask", name),
            )
    if chosen in masks.names():  # below: a hover's text over a picture would cover the page's title
        st.caption(md(masks.definition(chosen).DESCRIPTION))


def chosen() -> str:
    """The name of the first mask of the form that was drawn."""
    return st.session_state["masks/mask/name"]


def pictures(state: url.State, choice: Choice, measured: dict[str, pd.DataFrame]) -> None:
    """One or two large pictures of the same region with their figures (``measured``, by mask); drawing a box
    zooms in until pixels are elements."""
    region = _region(state, choice)
    single = len(choice.texts) == 1
    side = 400 if single else 300
    with st.container(horizontal=True, gap="medium"):
        for number, text in enumerate(choice.texts):
            shares, rows, keys = stats.pixels(
                text, choice.seq_q, choice.seq_k, region, mask_files.stamp(text)
            )
            drawn = partial(picture.picture, shares, rows, keys, title(text), style.theme(), side)
            about = (text, mask_files.stamp(text), choice.seq_q, choice.seq_k, region, style.theme(), side)
            fig = cached_chart.once(("mask", *about), drawn)
            key = f"masks/picture/{number}/{region}"
            with st.container(width=455 if single else 385):
                st.plotly_chart(
                    shown(fig, clickmode="event", hovermode="closest"),
                    theme=None,
                    key=key,
                    on_select=partial(_zoom, key, choice),
                    selection_mode="box",
                    width="stretch",
                    config={"displaylogo": False, "modeBarButtons": [["toImage", "select2d"]]},
                )
                if not single:
                    facts.draw(text, choice.seq_q, choice.seq_k, measured[text])
            if single:
                with st.container(width=310):
                    facts.draw(text, choice.seq_q, choice.seq_k, measured[text])
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if region:
            st.button("Whole mask", on_click=_look, args=(None,), key="masks/whole")
            st.button("Zoom out", on_click=_look, args=(_wider(region, choice),), key="masks/wider")
        st.caption(
            f"Draw a box to zoom in. Up to {picture.PIXELS} × {picture.PIXELS} elements, each pixel is "
            "one element."
        )


def result(state: url.State, choice: Choice) -> None:
    """Everything to the right of the form."""
    sizes = choice.seq_q, choice.seq_k
    measured = {text: facts.measured(text, *sizes) for text in choice.texts}
    lines = []
    for text in choice.texts:
        name = f"**{md(title(text))}** · " if len(choice.texts) > 1 else ""
        lines.append(name + facts.sentence(text, *sizes, measured[text]))
    st.markdown("\n\n".join(lines))
    pictures(state, choice, measured)
    look = views.Look(
        choice.texts,
        choice.seq_q,
        choice.seq_k,
        f"{choice.seq_q:,} queries × {choice.seq_k:,} keys",
        style.theme(),
    )
    redraw.part(state, lambda now: views.draw(fields.view(now, "view", views.NAMES), now, look))


def title(text: str) -> str:
    """A mask as a short heading."""
    name = stats.name(text)
    return name if len(name) <= 44 else name[:43] + "…"


def _size(state: url.State, name: str, label: str, default: int) -> int:
    size = Parameter(name, "int", low=1, high=_LONGEST, typical=_SEQS)
    key = state.seed(name, default, url.reader(size))
    value, good = fields.slider(state, label, key, size)
    if good and name != "seq_k":
        state.keep(name, value, default)
    return value


def _region(state: url.State, choice: Choice) -> tuple[int, int, int, int] | None:
    """The part that is looked at, from the URL or the last box; None for everything."""
    key = state.seed("region", "", _read_region)
    text = st.session_state[key]
    if not text:
        return None
    top, bottom, left, right = map(int, text.split("-"))
    if bottom > choice.seq_q or right > choice.seq_k:
        st.session_state[key] = ""
        return None
    state.keep("region", text)
    return top, bottom, left, right


def _read_region(text: str) -> str:
    try:
        top, bottom, left, right = (int(part) for part in text.split("-"))
        if not (0 <= top < bottom and 0 <= left < right):
            raise ValueError
    except ValueError:
        raise ValueError("a region is first query-last-first key-last, such as 0-64-128-192") from None
    return f"{top}-{bottom}-{left}-{right}"


def _zoom(key: str, choice: Choice) -> None:
    """A box was drawn on the picture of that key (a callback)."""
    box = _box(st.session_state.get(key), choice)
    if box:
        _look(box)


def _box(event, choice: Choice) -> tuple[int, int, int, int] | None:
    """The box that was drawn, in whole elements and at least eight a side; None for none."""
    boxes = (event or {}).get("selection", {}).get("box") or []
    if not boxes:
        return None
    sides = []
    for name, size in (("y", choice.seq_q), ("x", choice.seq_k)):
        low, high = sorted(float(v) for v in boxes[0][name])
        first = min(max(0, round(low + 0.5)), size - 1)
        last = min(size, max(round(high + 0.5), first + 8))
        sides += [max(0, min(first, last - 8)), last]
    return tuple(sides)


def _wider(region, choice: Choice):
    top, bottom, left, right = region
    sides = []
    for first, last, size in ((top, bottom, choice.seq_q), (left, right, choice.seq_k)):
        length = last - first
        sides += [max(0, first - length // 2), min(size, last + length // 2 + 1)]
    return None if sides == [0, choice.seq_q, 0, choice.seq_k] else tuple(sides)


def _look(region) -> None:
    st.session_state["masks/region"] = "-".join(map(str, region)) if region else ""


@st.cache_data(max_entries=2, show_spinner=False)
def _pictures_of_buttons(theme: str) -> str:
    """CSS: pictures as elements of their own are two dozen more that the browser draws again each time."""
    rules = [
        ".st-key-gallery button { padding-top: 64px; background: top center / 60px no-repeat; "
        "border-radius: 0; image-rendering: pixelated }",
        ".st-key-gallery button p { font-size: .8rem }",
    ]
    for name in masks.names():
        file = io.BytesIO()
        Image.fromarray(_thumb(name, theme)).save(file, "png")
        data = base64.b64encode(file.getvalue()).decode()
        picture_url = f"url(data:image/png;base64,{data})"
        rules.append(f".st-key-gallery-{name} button {{ background-image: {picture_url} }}")
    return "\n".join(rules)


def _thumb(name: str, theme: str) -> np.ndarray:
    """RGB picture (uint8) of a mask with its defaults; a few lengths where it needs some."""
    given = {
        p.name: [_GALLERY_SEQ * 6 // 10] for p in masks.definition(name).PARAMETERS if p.default is REQUIRED
    }
    kept = masks.load(name, **given).dense(_GALLERY_SEQ)
    shares = thumbnail.shrink(kept[0] if kept.ndim == 3 else kept, _THUMB)[..., None]
    paper = np.array([0xE4, 0xE7, 0xEB] if theme == "light" else [0x33, 0x3A, 0x45])
    ink = np.array([0x00, 0x72, 0xB2])
    return (paper + (ink - paper) * np.sqrt(shares)).astype(np.uint8)
