"""Untrusted names, as text on a chart: plotly reads a small HTML in every text, and a kernel's name
is full of < and >."""

from __future__ import annotations

import base64
import html
import re
import zlib
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fusescope.analysis.kernel_names import base
from fusescope.charts import template

_LISTED = 10_000  # elements of an array
_LINK = re.compile(r"<(?=\s*/?\s*a\b)", re.IGNORECASE)
HUES = (
    "#0072B2",
    "#8A7A00",
    "#B75A92",
    "#56A0C9",
    "#5B6FB5",
    "#C0507A",
    "#7D8590",
    "#3C8FCB",
    "#A8902A",
    "#0A89A8",
    "#9A7088",
)
"""Of colours.SERIES, and some between with a contrast of 3:1 to either page: no orange, which is ours, and no
green, which is faster."""


def plain(name: object, most: int = 90) -> str:
    """The name as the characters it is made of, cut in the middle where it is longer than ``most``."""
    text = " ".join("".join(c if c.isprintable() else " " for c in str(name)).split())
    if len(text) > most:
        text = text[: most * 2 // 3 - 1] + "…" + text[-(most // 3) :]
    return html.escape(text, quote=False)


def unlinked(fig: go.Figure) -> go.Figure:
    """The figure without links: plotly makes them of <a href=…> in any of its texts, and none of ours has
    one. The same figure where there are none."""
    whole, found = _inert(fig.to_plotly_json())
    return go.Figure(whole, skip_invalid=True) if found else fig


class Shown(go.Figure):
    """A figure as a page hands it to Streamlit, which asks for the dictionary each time: it is made once."""

    def __init__(self, whole: dict):
        super().__init__()
        self._whole = whole

    def to_dict(self) -> dict:
        return self._whole


def shown(fig: go.Figure, characters: int | None = None, **layout: Any) -> Shown:
    """The figure without links, with what it does not say itself of ``layout``; ``characters``: of a line of
    its subtitle. Made once for a figure, which must not be changed then: plotly copies and searches a whole
    figure whenever it is asked for it."""
    kept = vars(fig).setdefault("_shown", {})
    key = (characters, *layout.items())
    if key not in kept:
        whole = _lists(fig.to_plotly_json())
        if characters:
            whole["layout"] = template.fitted(whole["layout"], characters)
        whole, _ = _inert(whole)
        kept[key] = Shown(whole | {"layout": layout | whole["layout"]})
    return kept[key]


def _lists(value: Any) -> Any:
    """The value with plotly's packed arrays as lists, but for large ones: a browser takes the second copy of
    a packed one for other data and draws it again, which for a large one is less work than to read a list."""
    if isinstance(value, dict) and "bdata" in value:
        array = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
        if array.size > _LISTED:
            return value
        array = array.reshape([int(n) for n in value.get("shape", str(array.size)).split(",")])
        unknown = array.dtype.kind == "f" and not np.isfinite(array).all()
        return (np.where(np.isfinite(array), array, None) if unknown else array).tolist()
    if isinstance(value, dict):
        return {k: _lists(v) for k, v in value.items()}
    return [_lists(v) for v in value] if isinstance(value, list | tuple) else value


def _inert(value: Any) -> tuple[Any, bool]:
    """(the value with the < of every link's tag as text, whether there was one)."""
    if isinstance(value, str):
        made, count = _LINK.subn("&lt;", value)
        return made, count > 0
    if isinstance(value, dict):
        parts = {k: _inert(v) for k, v in value.items()}
        return {k: made for k, (made, _) in parts.items()}, any(found for _, found in parts.values())
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        pairs = [_inert(v) for v in value]
        return ([made for made, _ in pairs], True) if any(found for _, found in pairs) else (value, False)
    return value, False


def label(name: object, most: int = 40) -> str:
    """A kernel's own name without return type, namespaces, template arguments and parameters: what fits on a
    bar. An operator's name (aten::mm) has no such parts and stays whole."""
    text = str(name)
    return plain(base(text) if "(" in text or "<" in text else text, most)


def hue(name: object) -> str:
    """One colour a name, the same everywhere: of a kernel, that of its function."""
    return HUES[zlib.crc32(base(str(name)).encode(errors="replace")) % len(HUES)]


def text_on(colour: str) -> str:
    """Black or white, whichever has the higher contrast on #RRGGBB (WCAG 2's relative luminance)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return "#FFFFFF" if 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179 else "#14181D"
