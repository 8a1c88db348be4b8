"""The time breakdown: module → operator → kernel as an icicle or a sunburst."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusescope.charts import numbers, template
from fusescope.charts.escape import hue, label, plain, text_on

SHAPES = ("icicle", "sunburst")
MOST = 400
"""Boxes drawn; what is smaller is summed up in one box."""
_RINGS = 6  # of a sunburst, wide enough for text; a click zooms in
_LEVELS = {"module": "#6B7C93", "operator": "#3C8FCB", "rest": "#8A9199"}


def nodes(rows: Sequence[dict], levels: Sequence[str], most: int = MOST) -> list[dict]:
    """The tree of ``store.timeline.tree`` as boxes, root first: {"id", "parent", "name", "level", "ns",
    "calls"}.

    rows: {"path", "ns", "calls"}; levels: what each part of a path is ("module", "operator", "kernel"). A
    dotted module becomes a box a part. Siblings are ordered by time, numbered ones by number. Only the
    ``most`` largest boxes are kept; a parent's others are one box "n smaller".
    """
    found: dict[tuple, dict] = {(): {"name": "all", "level": "all", "ns": 0, "calls": 0}}
    for row in rows:
        path: list[tuple[str, str]] = []
        for level, name in zip(levels, row["path"], strict=True):
            if name.startswith("(no ") and level != levels[-1]:
                continue  # the trace does not say: its kernels stand one level higher
            path += [(level, part) for part in (name.split(".") if level == "module" else [name])]
        for end in range(len(path) + 1):
            key = tuple(path[:end])
            node = found.setdefault(
                key, {"name": path[end - 1][1], "level": path[end - 1][0], "ns": 0, "calls": 0} if end else {}
            )
            node["ns"] += row["ns"]
            node["calls"] += row["calls"]
    kept = {()} | {k for k in sorted(found, key=lambda k: -found[k]["ns"])[: most - 1]}
    kept = {k for k in kept if all(k[:n] in kept for n in range(len(k)))}
    numbered = {k: str(n) for n, k in enumerate(sorted(kept, key=lambda k: (len(k), *_place(found[k]))))}
    out = [{"id": i, "parent": numbered[k[:-1]] if k else "", **found[k]} for k, i in numbered.items()]
    dropped: dict[tuple, list[dict]] = {}
    for key in found:
        if key not in kept and key[:-1] in kept:
            dropped.setdefault(key[:-1], []).append(found[key])
    for parent, small in dropped.items():
        one = {
            "name": f"{len(small)} smaller",
            "level": "rest",
            "ns": sum(s["ns"] for s in small),
            "calls": sum(s["calls"] for s in small),
        }
        out.append({"id": f"{numbered[parent]}/rest", "parent": numbered[parent], **one})
    return out


def _place(node: dict) -> tuple[int, int]:
    """The order of a box among its siblings: layers by their number, anything else by its time."""
    return (
        (0, int(node["name"])) if node["level"] == "module" and node["name"].isdecimal() else (1, -node["ns"])
    )


def picture(
    boxes: Sequence[dict], shape: str, of: str, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """Boxes of ``nodes`` as "icicle" or "sunburst". of: what the time is ("kernel time")."""
    if shape not in SHAPES:
        raise ValueError(f"the shape is {' or '.join(SHAPES)}, not {shape!r}")
    if not boxes or not boxes[0]["ns"]:
        return template.empty("The profile has no times.", theme)
    c, total = template.THEMES[theme], boxes[0]["ns"]
    fig = template.figure(f"Breakdown of {of}", subtitle, theme, height=620 if shape == "sunburst" else 520)
    colours = [
        c["grid"] if b["level"] == "all" else _LEVELS.get(b["level"]) or hue(b["name"]) for b in boxes
    ]  # a kernel keeps its colour of the timeline
    hover = [
        f"<b>{plain(b['name'], 160)}</b><br>{b['level']} · {numbers.time(b['ns'] / 1e6)} · "
        f"{numbers.percent(b['ns'] / total)} of all<br>{b['calls']:,} calls"
        for b in boxes
    ]
    names = [label(b["name"]) if b["level"] == "kernel" else plain(b["name"], 40) for b in boxes]
    # without a pattern plotly writes the colour into the trace and takes that for a change (template.figure)
    shared = dict(
        ids=[b["id"] for b in boxes],
        parents=[b["parent"] for b in boxes],
        labels=names,
        values=[b["ns"] for b in boxes],
        branchvalues="total",
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        text=[numbers.percent(b["ns"] / total) for b in boxes],
        textinfo="label+text",
        sort=False,
        marker=dict(colors=colours, pattern=dict(shape=[""]), line=dict(color=c["paper"], width=1)),
        leaf=dict(opacity=1),
        insidetextfont=dict(size=13, color=[text_on(x) for x in colours]),
        outsidetextfont=dict(size=13, color=c["ink"]),
    )
    if shape == "icicle":
        fig.add_trace(go.Icicle(**shared, tiling=dict(orientation="v", pad=1), pathbar=dict(visible=True)))
    else:
        fig.add_trace(go.Sunburst(**shared, maxdepth=_RINGS))
    fig.update_layout(margin=dict(l=4, r=4, b=8), uniformtext=dict(minsize=11, mode="hide"))
    return fig
