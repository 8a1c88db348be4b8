"""The common look of all charts, light and dark: title and subtitle, axes, hover box, saved images."""

from __future__ import annotations

import re

import plotly.graph_objects as go

THEMES = {
    "light": {"ink": "#1F2933", "muted": "#52606D", "grid": "#E4E7EB", "line": "#7B8794", "paper": "#FFFFFF"},
    "dark": {"ink": "#F0F2F5", "muted": "#AEB7C2", "grid": "#333A45", "line": "#8A94A3", "paper": "#0F1319"},
}
FASTER, SLOWER = "#23916A", "#9466C4"
"""Green and purple, readable on both pages: apart under every common colour-vision deficiency, and no
implementation's."""
RATIO_SCALE = {
    "light": ((0.0, "#C2A5DE"), (0.5, "#FFFFFF"), (1.0, "#82CBA6")),
    "dark": ((0.0, "#5A3880"), (0.5, "#0F1319"), (1.0, "#1C6B48")),
}
"""Slower, the page, faster; text is readable on all."""
TOP = 66
"""Pixels above the plot for a title and one line under it."""
BOTTOM = 57
"""Pixels below it for a line of ticks and the axis' title: with fewer, plotly measures them and draws all of
the chart again."""
FONT = "'Source Sans', 'Source Sans 3', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"  # the page's first
_LINE = 21  # pixels of one more line of a title, which plotly sets at the height of the largest
_SUBTITLE = 58  # characters that fit under the title of the narrowest chart (about 350 px)
_TITLE = 0.7  # of a subtitle's characters, those of a title that fit into the same width


def figure(title: str, subtitle: str = "", theme: str = "light", height: int = 380) -> go.Figure:
    """An empty figure in the common look; ``height`` in pixels is that with one line of ``subtitle``, and
    further lines (<br>, or where it is too long for a narrow chart) add to it. The paper has the page's
    colour, so that a saved image is as readable.

    A page shows plotly each figure twice, the second time a copy. ``datarevision`` says that its data are the
    same, and a template would be taken for another one; else a browser would draw all of it again. (NumPy
    arrays count as other data: give lists.)
    """
    c = THEMES[theme]
    given, subtitle = subtitle, _lines(subtitle, _SUBTITLE)
    axis = dict(
        gridcolor=c["grid"],
        linecolor=c["line"],
        zeroline=False,
        ticks="outside",
        ticklen=4,
        tickcolor=c["line"],
        automargin=True,
        separatethousands=True,
        title=dict(font=dict(size=12, color=c["muted"]), standoff=12),
    )
    lines = subtitle.count("<br>")
    height += _LINE * lines
    layout = dict(
        title=dict(
            text=f"<b>{title}</b>"
            + (f"<br><span style='font-size:12px;color:{c['muted']}'>{subtitle}</span>" if subtitle else ""),
            x=0,
            xanchor="left",
            xref="container",
            y=1 - 12 / height,
            yanchor="top",
            font=dict(size=16),
        ),
        font=dict(family=FONT, size=13, color=c["ink"]),
        paper_bgcolor=c["paper"],
        plot_bgcolor=c["paper"],
        margin=dict(l=8, r=16, t=TOP + _LINE * lines, b=BOTTOM),
        height=height,
        hoverlabel=dict(
            bgcolor=c["paper"],
            bordercolor=c["line"],
            font=dict(family=FONT, color=c["ink"], size=12),
            align="left",
        ),
        xaxis=axis,
        yaxis=axis,
        showlegend=False,
        bargap=0.35,
        datarevision=1,
        meta=dict(title=title, subtitle=given),
        modebar=dict(bgcolor="rgba(0,0,0,0)", color=c["muted"], activecolor=c["ink"]),
    )
    fig = go.Figure(layout=layout)  # a third of the time that update_layout takes
    fig.layout.template = None  # plotly's own, which a figure gets otherwise
    return fig


def fitted(layout: dict, characters: int) -> dict:
    """The layout of a figure for a chart whose subtitle has room for so many characters a line: title and
    subtitle are wrapped anew, and height and margin follow, so that the plot keeps its size."""
    meta, now = layout.get("meta") or {}, layout.get("title", {}).get("text") or ""
    title, subtitle = meta.get("title", ""), meta.get("subtitle", "")
    old = _lines(subtitle, _SUBTITLE)
    if not title or not now.startswith(f"<b>{title}</b>") or old not in now:
        return layout  # the chart has another title by now
    head, rest = wrapped(title, int(_TITLE * characters)), now[len(f"<b>{title}</b>") :]
    text = f"<b>{head}</b>" + (rest.replace(old, _lines(subtitle, characters), 1) if old else rest)
    more = _LINE * (text.count("<br>") - now.count("<br>"))
    if not more:
        return layout
    height = layout["height"] + more
    top = (1 - layout["title"]["y"]) * layout["height"]
    return layout | {
        "title": layout["title"] | {"text": text, "y": 1 - top / height},
        "margin": layout["margin"] | {"t": layout["margin"]["t"] + more},
        "height": height,
    }


def _lines(subtitle: str, width: int) -> str:
    return "<br>".join(wrapped(line, width) for line in subtitle.split("<br>"))


def join(*parts: str) -> str:
    """The parts of a subtitle that are not empty, with dots between."""
    return " · ".join(p for p in parts if p)


def wrapped(text: str, width: int = _SUBTITLE) -> str:
    """The text with <br> where it is longer than ``width`` characters, at " · " or ", " before it breaks
    between words."""
    lines = [""]
    for part in re.split(r"(?<= · )|(?<=, )", text):
        for piece in [part] if len(part) <= width else re.split(r"(?<= )", part):
            if lines[-1] and len(lines[-1] + piece.rstrip(" ·,")) > width:
                lines.append("")
            lines[-1] += piece
    return "<br>".join(line.rstrip(" ·") for line in lines)


def config(name: str, image: str = "png") -> dict:
    """plotly's display settings: the camera button saves ``name`` as PNG (twofold resolution) or SVG; nothing
    goes to a cloud."""
    return {
        "displaylogo": False,
        "responsive": True,
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
        "toImageButtonOptions": {"format": image, "filename": name, "scale": 2 if image == "png" else 1},
        "showSendToCloud": False,
    }


def empty(text: str, theme: str = "light", height: int = 160) -> go.Figure:
    """A figure that says in one sentence why there is nothing to draw."""
    fig = figure("", "", theme, height)
    fig.update_layout(xaxis=dict(visible=False), yaxis=dict(visible=False), margin=dict(l=8, r=8, t=8, b=8))
    centre = dict(x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False)
    fig.add_annotation(text=text, font=dict(color=THEMES[theme]["muted"]), **centre)
    return fig
