"""Names that our code reads of modules exist: of torch and of our own rooms, inside functions too.

Much of the code runs on a GPU only, where no other test of this machine comes; a misspelt name there would be
found by a user.
"""

import ast
import importlib
import types

import pytest

from fusescope.core.paths import ROOT

FOLDERS: dict[str, list] = {}
for _room in ("backend", "pages", "scripts"):
    for _file in sorted((ROOT / _room).rglob("*.py")):
        FOLDERS.setdefault("/".join(_file.relative_to(ROOT).parts[:4][:-1]), []).append(_file)
OURS = ("fusescope", "pages", "torch")
# Looked up by name when the extension is loaded, and what only builds with CUDA have.
ELSEWHERE = (("torch", "ops"), ("torch", "_C"))


def imported(nodes: list[ast.AST]):
    """({name: module}, [what cannot be imported]) of all imports of ours and of torch, wherever they
    stand."""
    modules, gone = {}, []
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] in OURS:
                    module = importlib.import_module(each.name)
                    modules[each.asname or each.name.split(".")[0]] = (
                        module if each.asname else importlib.import_module(each.name.split(".")[0])
                    )
        elif (
            isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in OURS
        ):
            module = importlib.import_module(node.module)
            for each in node.names:
                found = getattr(module, each.name, None)
                if found is None and not hasattr(module, each.name):
                    try:
                        found = importlib.import_module(f"{node.module}.{each.name}")
                    except ImportError:
                        gone.append(f"{node.module}.{each.name}")
                if isinstance(found, types.ModuleType):
                    modules[each.asname or each.name] = found
    return modules, gone


def bound(nodes: list[ast.AST]) -> set[str]:
    """Names that also stand for something else somewhere in the file: nothing is known of them."""
    stores = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return stores | {n.arg for n in nodes if isinstance(n, ast.arg)}


def chains(nodes: list[ast.AST]):
    """(line, names) of every attribute chain that begins at a name."""
    for node in nodes:
        names, at = [], node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        if names and isinstance(at, ast.Name):
            yield node.lineno, [at.id, *reversed(names)]


def missing(module: types.ModuleType, names: list[str]) -> str | None:
    """The first part of a chain that is not there; what hangs on a value is not looked at."""
    if any(tuple(names[:2]) == e for e in ELSEWHERE):
        return None
    found = module
    for number, name in enumerate(names[1:], 2):
        if not isinstance(found, types.ModuleType | type):
            return None
        if not hasattr(found, name):
            try:
                importlib.import_module(f"{module.__name__}.{'.'.join(names[1:number])}")
            except ImportError:
                return ".".join(names[:number])
        found = getattr(found, name)
    return None


def wrong(text: str) -> list[str]:
    nodes = list(ast.walk(ast.parse(text)))
    modules, gone = imported(nodes)
    if not modules:
        return gone
    others = bound(nodes)
    known = {name: module for name, module in modules.items() if name not in others or name == "torch"}
    return gone + [
        m for _, names in chains(nodes) if names[0] in known and (m := missing(known[names[0]], names))
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_exist(folder):
    assert not {f.name: gone for f in FOLDERS[folder] if (gone := wrong(f.read_text()))}


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n import torch\n return torch.cuda.get_devicecapability(0)",
        "from fusescope.ops.attention.dispatch import choise",
        "from fusescope.ops.attention.work import parts\ndef f(): return parts.KERNAL",
    ],
)
def test_a_name_that_is_not_there_is_found(text):
    assert wrong(text)
