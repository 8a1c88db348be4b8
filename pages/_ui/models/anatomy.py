"""Where a model's parameters are: exact counts from its table of weights."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from fusescope import models
from fusescope.charts import numbers
from fusescope.charts.models import anatomy
from pages._ui.app import cached_chart
from pages._ui.models.form import Choice
from pages._ui.widgets import elements, style

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def draw(choice: Choice) -> None:
    """Nested areas and a table for the chosen sizes."""
    case = choice.cases[-1] if choice.cases else {}
    sizes = {k: case[k] for k in ("seq", "layers", "heads", "head_dim", "phase") if k in case}
    try:
        nodes = models.anatomy(choice.model, sizes, choice.checkpoint)
    except ValueError:
        elements.note("The settings are invalid; see the form.")
        return
    total = nodes[0].count
    deepest = next((n for n in nodes if n.label.startswith("layer ")), None)
    with st.container(horizontal=True, gap="large"):
        st.metric("parameters", f"{total:,}", width="content")
        st.metric(f"weights in {choice.dtype}", numbers.size(total * _BYTES[choice.dtype]), width="content")
        if deepest:
            st.metric("per layer", f"{deepest.count:,}", width="content")
    title, whole = f"Parameters of {models.title(choice.model)}", _whole(choice, sizes)
    if whole:
        count = models.anatomy(choice.model, sizes | {"layers": whole})[0].count
        title += f", {sizes['layers']} of {whole} layers"
        elements.note(
            f"Of {sizes['layers']} of {whole} layers, as the form sets. All {whole} layers: {count:,} "
            f"parameters, {numbers.size(count * _BYTES[choice.dtype])}."
        )
    theme = style.theme()
    key = ("anatomy", choice.model, choice.checkpoint, tuple(sorted(sizes.items())), theme)
    fig = cached_chart.once(
        key, lambda: anatomy.areas(nodes, title, "exact counts; click a part to zoom in", theme)
    )
    data = pd.DataFrame(
        [
            {
                "part": "  " * n.name.count("/") + n.label,
                "parameters": n.count,
                "share (%)": 100 * n.count / total,
                "path": n.name,
                "kind": n.kind,
            }
            for n in nodes
        ]
    )
    name = f"{choice.model}-parameters"
    elements.chart(fig, name, data.drop(columns="part"))
    depth = st.segmented_control(
        "depth", [1, 2, 3, 4, 5], default=3, key="models/depth", required=True, help="Levels of the table"
    )
    table = data[data.path.str.count("/") <= depth]
    elements.table(
        table.drop(columns="kind"),
        f"{name}-table",
        data.drop(columns="part"),
        height=360,
        column_config={"parameters": st.column_config.NumberColumn(format="localized")},
    )


def _whole(choice: Choice, sizes: Mapping) -> int | None:
    """The layers of the published model where ``sizes`` has fewer; None for a checkpoint."""
    whole = None if choice.checkpoint else models.config(choice.model).layers
    return whole if whole and sizes.get("layers", whole) < whole else None
