"""The command line measures and answers where the app's packages are not installed: what it takes from charts
draws nothing."""

import ast
import subprocess
import sys

import pytest

from fusescope.core import paths

CLI = paths.ROOT / "backend" / "fusescope" / "cli"
DRAWN = {
    "fusescope.charts.bench.history",  # regressions: the alarms of the chart, from the library's tables
    "fusescope.charts.compared.pairs",  # compare: the same
    "fusescope.charts.fusion.report",  # runs export --report: a file with charts
    "fusescope.charts.report",
}
"""Of charts what needs plotly or pandas, and so the verbs that do."""


def _imported() -> list[str]:
    """Modules of charts that a file of the command line imports, inside its functions too."""
    found = set()
    for file in sorted(CLI.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fusescope.charts"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {name if _is_module(name) else node.module for name in names}
    return sorted(found)


def _is_module(name: str) -> bool:
    path = paths.ROOT.joinpath("backend", *name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_what_is_named_here_is_still_imported():
    assert set(_imported()) >= DRAWN


@pytest.mark.parametrize("module", [m for m in _imported() if m not in DRAWN])
def test_it_imports_without_the_apps_packages(module):
    absent = ("plotly", "pandas", "streamlit", "duckdb", "pyarrow")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    code = f"{blocked}; import {module}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": paths.python_path()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
