"""A user's own implementation, path/to/file.py:function: described without running it, imported when it is
called."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from fusescope.ops.base import Implementation


def described(impl: str) -> Implementation:
    """What can be said without running the file; ValueError where there is no such file, or no such function
    in it."""
    path, _, name = impl.rpartition(":")
    file = Path(path).expanduser()
    if not file.is_file():
        where = "" if file.is_absolute() else f" in {Path.cwd()}"
        raise ValueError(
            f"{impl}: no file {file}{where}; a user's implementation is written path/to/file.py:function"
        )
    source = file.read_bytes()
    _check_defined(file, source, name)
    digest = hashlib.sha256(source).hexdigest()[:16]
    return Implementation(impl, "user", f"{name} of {file.name}", ("cpu", "cuda"), str(file), digest)


def function(impl: str) -> Callable:
    """The function itself, its file imported again; ValueError as in ``described``, and whatever the file
    raises."""
    described(impl)
    path, _, name = impl.rpartition(":")
    file = Path(path).expanduser().resolve()
    spec = importlib.util.spec_from_file_location(
        f"fusescope_user_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}", file
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling inside the user's file look it up
    # From the text, not by the loader: its bytecode goes by size and second, and an edit may keep both.
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{file} has no function {name!r}")
    return found


def _check_defined(file: Path, source: bytes, function: str) -> None:
    """ValueError where the file does not parse, or nowhere outside its functions and classes binds the name.
    Nothing is run; a file that imports everything of another, or defines ``__getattr__``, may have any
    name."""
    try:
        tree = ast.parse(source, str(file))
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, by Python before 3.12
        raise ValueError(f"{file} is no Python: {error}") from None
    bound = _bound_names(tree.body)
    if function in bound or bound & {"*", "__getattr__"}:
        return
    functions = sorted(n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    has = f"it has {', '.join(functions)}" if functions else "it has none"
    raise ValueError(f"{file} has no function {function!r}; {has}")


def _bound_names(statements: list[ast.stmt]) -> set[str]:
    """Names that statements of a module bind, those within if, try, with, for and while too; "*" for a star
    import."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)  # what stands inside is the function's own
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            waiting += ast.iter_child_nodes(node)
    return names
