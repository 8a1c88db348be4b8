"""The rooms and arrows of ARCHITECTURE.md's table, checked on every import of every file, those inside
functions included."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from fusescope.core.paths import ROOT

TORCH_AT_MODULE_LEVEL = (
    *(
        "measure",
        "jobs",
        "models.run",
        "models.inspect",
        "models.accuracy",
        "models.scores",
        "models.parallel",
    ),
    *("ops.attention.peers", "ops.common.algorithms", "ops.common.algorithm_store"),
)
HEAVY = {"torch", "transformers", "triton"}
LINES, FILES = 300, 12  # of a file; in a folder, without __init__.py
ONE_FILE_EACH = {
    "masks",
    "verbs",
    "kinds",
    "wrong",
}  # folders in which every file is found by name: a list of things, not a room


@cache
def arrows() -> dict[str, set[str]]:
    """The table of rooms: {room: rooms it may import}; a dotted room is a part of another with arrows of its
    own, and search.* stands for all that begin with search."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("| room |"))
    found = {}
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        room, _, targets, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        found[room] = {t.strip() for t in targets.split(",")} - {"–"}

    def rooms(target: str) -> set[str]:
        return {r for r in found if r.startswith(target[:-1])} if target.endswith(".*") else {target}

    return {room: set().union(*map(rooms, targets)) for room, targets in found.items()}


def files() -> list[Path]:
    return [
        ROOT / "app.py",
        *sorted((ROOT / "pages").rglob("*.py")),
        *sorted((ROOT / "backend" / "fusescope").rglob("*.py")),
    ]


def module_of(file: Path) -> str:
    base = ROOT / "backend" if file.is_relative_to(ROOT / "backend") else ROOT
    return ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str | None:
    """The longest row of the table that the module lies in; None: the public face fusescope/__init__.py,
    which may import any room."""
    parts = module.split(".")
    if parts[0] in ("app", "pages"):
        return "pages"
    if parts[1:] == ["__main__"]:
        return "cli"
    names = [".".join(parts[1:n]) for n in range(len(parts), 1, -1)]
    return next((name for name in names if name in arrows()), None)


@cache
def read(file: Path) -> tuple[list[tuple[str, bool]], list[str]]:
    """Of every import in the file (name, at module level); and what it uses of our modules' private names.
    `from a import b` gives a.b too, b may be a module. Trees are not kept: those of all files are large."""
    tree = ast.parse(file.read_text())
    return list(_imports(tree, file, top=True)), list(_private(tree, file))


def _imports(node: ast.AST, file: Path, top: bool):
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from ((a.name, top) for a in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{file}: imports are absolute here"
        yield from ((f"{node.module}.{a.name}", top) for a in node.names)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from _imports(
                child, file, top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def _private(tree: ast.AST, file: Path):
    """Neither `from ours import _name` nor `ours._name`."""
    modules, attributes = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.append(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("fusescope", "pages"):
            for a in node.names:
                if a.name.startswith("_") and not a.name.startswith("__") and not a.asname:
                    yield f"{file} imports {node.module}.{a.name}"
                if f"{node.module}.{a.name}" in modules_of_ours():
                    modules[a.asname or a.name] = a.name
    for node in attributes:
        if node.value.id in modules and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield f"{file}:{node.lineno} uses {modules[node.value.id]}.{node.attr}"


@cache
def modules_of_ours() -> dict[str, Path]:
    return {module_of(f): f for f in files()}


def by_folder() -> list:
    """The files of the app and of each top folder, a parameter each: thousands of tests would cost more than
    they check."""
    found: dict[str, list[Path]] = {}
    for file in files():
        found.setdefault("/".join(file.relative_to(ROOT).parts[:3][:-1]) or ".", []).append(file)
    return [pytest.param(held, id=folder) for folder, held in found.items()]


@cache
def graph() -> dict[str, set[str]]:
    """Every module of ours and the modules of ours that it imports anywhere."""
    known, found = modules_of_ours(), {}
    for module, file in known.items():
        names = {name if name in known else name.rpartition(".")[0] for name, _ in read(file)[0]}
        found[module] = (names & known.keys()) - {module}
    return found


@pytest.mark.parametrize("held", by_folder())
def test_imports_follow_the_arrows(held):
    for file in held:
        _follows_the_arrows(file)


def _follows_the_arrows(file: Path) -> None:
    module = module_of(file)
    room = room_of(module)
    assert room in arrows() or module == "fusescope", (
        f"{file} is in a room that ARCHITECTURE.md does not know"
    )
    for name, top in read(file)[0]:
        first = name.split(".")[0]
        if first == "fusescope" and room and (target := room_of(name)):
            assert target == room or target in arrows()[room], (
                f"{module} imports {name}: no arrow from {room} to {target}"
            )
        if first in HEAVY and top:
            allowed = f"{module}.".startswith(tuple(f"fusescope.{part}." for part in TORCH_AT_MODULE_LEVEL))
            assert allowed, f"{module} imports {first} at module level; {room} imports it inside functions"
        if first == "streamlit":
            assert room == "pages", f"{module} imports streamlit; only pages may"


def test_the_table_names_rooms_that_exist():
    package = ROOT / "backend" / "fusescope"
    rooms = {p.name for p in package.iterdir() if (p / "__init__.py").is_file()} | {"pages"}
    assert rooms - {"schemas"} <= arrows().keys(), "a room without a line"
    for room in arrows().keys() - {"pages"}:
        path = package.joinpath(*room.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), (
            f"ARCHITECTURE.md names {room}, which does not exist"
        )
    targets = {t for row in arrows().values() for t in row}
    assert targets <= arrows().keys(), f"arrows to no room: {targets - arrows().keys()}"


def test_no_import_circles():
    """Depth first over all imports, those inside functions included: an arrow back to a module on the way is
    a circle."""
    done: set[str] = set()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"import circle: {' -> '.join([*way[way.index(module) :], module])}"
        if module not in done:
            for target in sorted(graph()[module]):
                walk(target, (*way, module))
            done.add(module)

    for module in sorted(graph()):
        walk(module, ())


@pytest.mark.parametrize("held", by_folder())
def test_private_names_stay_in_their_file(held):
    assert not [use for file in held for use in read(file)[1]]


def test_files_are_short():
    lines = {file: len(file.read_text().splitlines()) for file in files()}
    assert not {f: n for f, n in lines.items() if n > LINES}, f"longer than {LINES} lines: split them"


def test_folders_are_small():
    for folder in {f.parent for f in files()}:
        held = [f for f in folder.glob("*.py") if f.name != "__init__.py"]
        assert len(held) <= FILES or folder.name in ONE_FILE_EACH, (
            f"{folder} holds {len(held)} files: divide it"
        )


def test_files_of_tests_have_names_of_their_own():
    """Two of one name in folders that are no packages cannot be collected together."""
    places: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        if not (file.parent / "__init__.py").exists() and file.name != "conftest.py":
            places.setdefault(file.name, []).append(str(file.relative_to(ROOT)))
    assert [found for found in places.values() if len(found) > 1] == []


def test_the_check_sees_a_forbidden_arrow(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from fusescope.store import folder\n    return folder\n")
    assert ("fusescope.store.folder", False) in read(bad)[0]
    assert room_of("fusescope.store.folder") == "store" and "store" not in arrows()["measure"]
