"""A user's own implementation, path/to/file.py:function: described without running it, imported when it is
called."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusescope.ops.base import Implementation

_NOT_CALLED = {"jit", "kernel", "autotune", "heuristics"}
"""Decorators of what a host function launches: triton.jit, cute.kernel."""
_PLAN = ("plan", "mask")
"""Names of a parameter with a default that is meant for a plan."""


@dataclass(frozen=True)
class Signature:
    """A function of a file as its source says. names: of the parameters that may be given by place;
    required: how many of them have no default; more: whether ``*args`` takes any further."""

    name: str
    names: tuple[str, ...]
    required: int
    more: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join([*self.names, *['*args'] * self.more])})"


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


def functions(path: str) -> list[Signature]:
    """The functions that a file defines at its top, without those named _so and those that run on a device
    alone; nothing is run. ValueError where there is no such file, it is no Python, or it has none."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(f"no file {file}" + ("" if file.is_absolute() else f" in {Path.cwd()}"))
    found = [
        n
        for n in _parsed(file, file.read_bytes()).body
        if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    ]
    listed = [_signature(n) for n in found if not _NOT_CALLED & set(map(_decorator, n.decorator_list))]
    if not listed:
        raise ValueError(f"{file} defines no function that can be called")
    return listed


def taken(function: Callable, args: Sequence[Any]) -> Sequence[Any]:
    """Those of an operator's arguments that a function has parameters for. What it leaves out at the end must
    be settings (an epsilon, a plan in which every key is live, None): whether their value matters is seen
    by the check. TypeError where a tensor, or a mask that hides something, would be left out."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of compiled code: it knows itself
        return args
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return args
    by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    place = next(
        (n for n, pair in enumerate(zip(args, by_place, strict=False)) if _other(*pair)), len(by_place)
    )
    for value in args[place:]:
        if not (value is None or isinstance(value, bool | int | float | str) or _all_live(value)):
            left_out = "the plan, whose mask hides keys" if hasattr(value, "is_full") else "a tensor"
            raise TypeError(
                f"{getattr(function, '__name__', 'the function')} takes {place} of {len(args)} arguments and "
                f"leaves out {left_out}"
            )
    return args[:place]


def _other(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether a plan would be taken for something else: the ``scale=None`` of f(q, k, v, scale=None)."""
    return (
        hasattr(value, "is_full") and parameter.default is not parameter.empty and parameter.name not in _PLAN
    )


def _all_live(value: Any) -> bool:
    return getattr(value, "is_full", False) is True


def _signature(node: ast.FunctionDef) -> Signature:
    names = tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args))
    return Signature(node.name, names, len(names) - len(node.args.defaults), node.args.vararg is not None)


def _decorator(node: ast.expr) -> str:
    """The last name of a decorator: "jit" of triton.jit(...)."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _parsed(file: Path, source: bytes) -> ast.Module:
    try:
        return ast.parse(source, str(file))
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, by Python before 3.12
        raise ValueError(f"{file} is no Python: {error}") from None


def _check_defined(file: Path, source: bytes, function: str) -> None:
    """ValueError where the file does not parse, or nowhere outside its functions and classes binds the name.
    Nothing is run; a file that imports everything of another, or defines ``__getattr__``, may have any
    name."""
    tree = _parsed(file, source)
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
