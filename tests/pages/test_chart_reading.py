"""Every chart says how it is read."""

import ast

import pytest

from fusescope.core import paths
from pages._ui.widgets import reading


def _titles():
    """The titles that charts give their figures, with X for what is filled in."""
    for file in sorted((paths.ROOT / "backend" / "fusescope" / "charts").rglob("*.py")):
        if file.name in ("thumbnail.py", "template.py") or file.parent.name in ("ranks", "scaling"):
            continue  # without a title; charts that bring their own words
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "template.figure":
                first = node.args[0]
                if isinstance(first, ast.JoinedStr):
                    parts = [v.value if isinstance(v, ast.Constant) else "X" for v in first.values]
                    yield "".join(map(str, parts))
                elif isinstance(first, ast.Constant):
                    yield first.value


@pytest.mark.parametrize(
    "title",
    sorted(
        {
            *_titles(),
            "Error of each operation alone",
            "Keys per query",
            "Live tiles per row of 64 queries",
            "Speed-up of B over A",
            "Latency by seq",
            "Steps on the host",
            "6 kernels, 4 of them fused",
            "Probabilities of head 0",
            "Distribution in head 0",
        }
        - {"XX", "X by X"}
    ),
)
def test_every_chart_says_how_it_is_read(title):
    text = reading.of_title(title)
    assert len(text) > 40 and text.partition("\n")[0].endswith(".")
