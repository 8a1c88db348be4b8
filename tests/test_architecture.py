"""The rooms and arrows of ARCHITECTURE.md, checked on every import of every file, those inside functions included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from backend.core.paths import ROOT

SEARCH_TOLD = {  # torch-free: what pages and the command line may know of the search
    f"search.{name}"
    for name in [
        "encoding",
        "layer",
        "setting",
        "sittings",
        "templates",
        "codegen",
        "pairs",
        "features",
        "additive",
        "surrogate",
        "explore",
        "explain",
        "guided",
        "boosted",
        "evolve",
        "unfused",
    ]
}
ARROWS = {
    "core": set(),
    "masks": {"core"},
    "analysis": {"core"},
    "charts": {"core", "analysis"},
    "store": {"core"},
    "profiling": {"core", "analysis"},
    "kernels": {"core"},
    "ops": {"core", "masks", "kernels"},
    "models": {"core", "masks", "ops", "kernels", "analysis"},
    "measure": {"core", "ops", "models", "analysis", "kernels"},
    **{name: {"core", "masks", "ops", "analysis"} | SEARCH_TOLD for name in SEARCH_TOLD},
    "search.encoding": {"core"},
    "search.layer": {"core", "ops"},
    "search.sittings": {"core", "store"} | SEARCH_TOLD,
    "search": {"core", "masks", "ops", "models", "measure", "store", "analysis", "kernels"} | SEARCH_TOLD,
    "jobs.submit": {"core", "store", "jobs.kinds"},
    "jobs.kinds": {"core", "store", "masks", "analysis", "profiling", "kernels", "ops", "models", "measure", "search", "jobs"}
    | SEARCH_TOLD,
    "jobs": {
        "core",
        "store",
        "masks",
        "analysis",
        "profiling",
        "kernels",
        "ops",
        "models",
        "measure",
        "search",
        "jobs.submit",
        "jobs.kinds",
    },
    "cli": {"core", "masks", "analysis", "store", "charts", "jobs.submit", "jobs.kinds", "jobs", "ops", "models", "kernels"}
    | SEARCH_TOLD,
    "pages": {"core", "masks", "analysis", "store", "charts", "jobs.submit", "jobs.kinds", "jobs", "ops", "models", "kernels"}
    | SEARCH_TOLD,
}
TORCH_AT_MODULE_LEVEL = {"measure", "jobs"}
HEAVY = {"torch", "transformers", "triton"}


def _files() -> list[Path]:
    found = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py")), *sorted((ROOT / "backend").rglob("*.py"))]
    return [f for f in found if f.is_file()]


def _room(module: str) -> str:
    parts = module.split(".")
    if parts[0] in ("app", "pages"):
        return "pages"
    if len(parts) == 1 or parts[1] in ("__main__", "cli"):
        return "cli"
    if parts[1] == "jobs" and len(parts) > 2 and parts[2] in ("submit", "launch", "kinds"):  # launch: submit's other half
        return "jobs.kinds" if parts[2] == "kinds" else "jobs.submit"
    if ".".join(parts[1:3]) in SEARCH_TOLD:
        return ".".join(parts[1:3])
    return parts[1]


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(file: Path):
    """(name, at module level) of every import in the file; `from a import b` gives a.b too, b may be a module."""
    tree = ast.parse(file.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    typing_only = {
        id(n) for i in ast.walk(tree) if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.unparse(i.test) for n in ast.walk(i)
    }
    for node in ast.walk(tree):
        top = id(node) not in inside and id(node) not in typing_only
        if isinstance(node, ast.Import):
            yield from ((a.name, top) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            yield from ((f"{node.module}.{a.name}", top) for a in node.names)


@pytest.mark.parametrize("file", _files(), ids=lambda f: str(f.relative_to(ROOT)))
def test_imports_follow_the_arrows(file):
    module = _module(file)
    room = _room(module)
    assert room in ARROWS, f"{file} is in a room that ARCHITECTURE.md does not know"
    for name, top in _imports(file):
        first = name.split(".")[0]
        if first == "backend" and name != "backend":
            target = _room(name)
            if target == "cli" and name.split(".")[1] not in ("cli", "__main__"):
                continue  # backend.__version__
            assert target == room or target in ARROWS[room], f"{module} imports {name}: no arrow from {room} to {target}"
        if first in HEAVY and top:
            assert room in TORCH_AT_MODULE_LEVEL, f"{module} imports {first} at module level; {room} imports it inside functions"
        if first == "streamlit":
            assert room == "pages", f"{module} imports streamlit; only pages may"


def test_every_room_is_documented():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {p.name for p in (ROOT / "backend").iterdir() if (p / "__init__.py").is_file()}
    assert rooms <= {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")}, "a room without a line"


def test_the_check_sees_a_forbidden_arrow(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from backend.store import folder\n    return folder\n")
    assert ("backend.store.folder", False) in list(_imports(bad))
    assert "store" not in ARROWS["measure"]
