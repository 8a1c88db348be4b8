"""The rooms of pages/_ui import only rooms below their own, in the order that its docstring gives."""

import ast

import pytest

import pages._ui
from fusescope.core.paths import ROOT

pytestmark = pytest.mark.slow

HOME = ROOT / "pages" / "_ui"
FLOORS = next(part for part in pages._ui.__doc__.split("\n\n") if " < " in part).split("<")
FLOOR = {room: n for n, rooms in enumerate(FLOORS) for room in rooms.split()}


def rooms_imported(file):
    """(line, room of pages._ui) of every import, those inside functions included."""
    for node in ast.walk(ast.parse(file.read_text())):
        modules = []
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for parts in (module.split(".") for module in modules):
            if parts[:2] == ["pages", "_ui"] and len(parts) > 2:
                yield node.lineno, parts[2]


def test_every_room_has_a_floor():
    assert {p.name for p in HOME.iterdir() if (p / "__init__.py").is_file()} == set(FLOOR)


@pytest.mark.parametrize("room", FLOOR)
def test_a_room_imports_only_rooms_below(room):
    for file in sorted((HOME / room).rglob("*.py")):
        for line, other in rooms_imported(file):
            assert other == room or FLOOR[other] < FLOOR[room], (
                f"{file.relative_to(ROOT)}:{line}: {room} imports {other}; {pages._ui.__doc__}"
            )
