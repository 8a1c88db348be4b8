"""What tests ask of a page or a figure that was drawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from xml.etree import ElementTree

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from fusescope.core import doctor
from fusescope.core.machine import environment, toolchain


def look_up_once(setattr: Callable) -> None:
    """Each drawing by AppTest looks through every installed package for components, which no page uses, and
    each one after the caches were cleared asks the machine about itself: more than half of a test's time."""
    setattr(manifest_scanner, "scan_component_manifests", list)
    for module, name in (
        (doctor, "examine"),
        (environment, "collect"),
        (environment, "devices"),
        (toolchain, "known_archs"),
    ):
        setattr(module, name, cache(getattr(module, name)))


def calm(at: AppTest) -> AppTest:
    """The page, checked to show no stack trace."""
    assert not at.exception, [e.message for e in at.exception]
    return at


def said(elements) -> str:
    """All texts of some elements as a person reads them."""
    return "\n".join(str(e.value).replace("\\", "").replace("**", "") for e in elements)


def everything(at: AppTest) -> str:
    """All that is drawn as HTML or Markdown, as sent: what is escaped is harmless."""
    return "".join(e.value for e in (*at.markdown, *at.caption)) + "".join(
        e.proto.body for e in at.get("html")
    )


def widget(elements, label: str):
    """The one with this label."""
    return next(e for e in elements if e.label == label)


def figures(at: AppTest) -> str:
    """All charts as JSON."""
    return json.dumps([json.loads(c.proto.spec) for c in at.get("plotly_chart")], ensure_ascii=False)


def words(fig) -> str:
    """Everything written on a figure, hover texts included."""
    return json.dumps(json.loads(fig.to_json()), ensure_ascii=False)


def query(at: AppTest) -> dict[str, str]:
    """The URL's query as the page left it."""
    return {k: v[0] if isinstance(v, list) else v for k, v in at.query_params.items()}


def tables(at: AppTest) -> list[list[dict[str, str]]]:
    """The tables that carry reasons, as lists of rows: heading → text of the cell."""
    found = []
    for element in at.get("html"):
        if "fs-table" in element.proto.body:
            root = ElementTree.fromstring(element.proto.body.replace("tabindex='0'", ""))
            head = ["".join(cell.itertext()) for cell in root.iter("th")]
            rows = [["".join(cell.itertext()) for cell in row.iter("td")] for row in root.iter("tr")]
            found.append([dict(zip(head, row, strict=True)) for row in rows if row])
    return found
