"""From the text of a score expression to its nodes: what is not listed is refused, in one sentence that
names the part and what is allowed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fusescope.core.score.nodes import COMPARISONS, FUNCTIONS, VARIABLES, Node, Nodes

MOST_CHARACTERS, MOST_LEVELS, MOST_TABLES = 2000, 40, 8
_WRITTEN = re.compile(r"[A-Za-z0-9_+\-*/%<>=!.,()\[\]\s]*")
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_KNOWN = (
    f"{', '.join(VARIABLES)}, numbers, tensors by index (slope[h]), + - * / // %, {' '.join(COMPARISONS)}, "
    f"and, or, not, and {', '.join(FUNCTIONS)}"
)
_SHOWN = 60  # characters of a part in a message


@dataclass(frozen=True)
class Table:
    """A tensor of an expression: its name, "float" or "int", and how many indices it has."""

    name: str
    kind: str
    dims: int


@dataclass(frozen=True, eq=False)
class Expression:
    """A score expression as read: its text, its node, and its tables in the order of their places."""

    text: str
    root: Node
    tables: tuple[Table, ...]

    @property
    def only_adds(self) -> bool:
        """Whether it is score plus what does not depend on score, so that a bias could say the same."""
        node = self.root
        while node.op in ("+", "-"):
            left, right = node.args
            if node.op == "+" and "score" in right.depends:
                left, right = right, left
            if "score" in right.depends:
                return False
            node = left
        return node.op == "score"


def parse(text: str, tables: Mapping[str, tuple[str, int]]) -> Expression:
    """The expression that the text is, with tables {name: ("float" or "int", dimensions)}. TypeError where
    it is no text; ValueError in one sentence: a part that is not supported, a table that is missing, not
    used, or indexed otherwise, an expression without score."""
    tree = _tree(text)
    for name in tables:
        _check_name(name)
    reader = _Reader({name: Table(name, *of) for name, of in tables.items()})
    root = reader.nodes.as_float(reader.read(tree, 0))
    if root.kind == "bool":
        raise _refused(
            tree, "the whole expression is a number, not a condition; where(condition, a, b) chooses one"
        )
    if "score" not in root.depends:
        raise _refused(tree, "the expression is of score, scale q·k, which it does not name")
    used = tuple(reader.used)
    if unused := [name for name in tables if name not in {table.name for table in used}]:
        raise ValueError(f"the score expression does not name the tensor {unused[0]}: {_short(text)!r}")
    return Expression(" ".join(text.split()), root, used)


def tables_of(text: str) -> dict[str, tuple[str, int]]:
    """The tables that a text names, as ``parse`` takes them: those compared for equality, divided by // or
    %, or used within an index are taken as integers, the others as floating point. Errors as of
    ``parse``."""
    found: dict[str, tuple[str, int]] = {}
    for node, whole in _subscripts(_tree(text), False):
        if not isinstance(node.value, ast.Name):
            continue  # parse refuses it
        dims = len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1
        before = found.get(node.value.id, ("float", dims))
        found[node.value.id] = ("int" if whole or before[0] == "int" else "float", dims)
    return found


def _subscripts(node: ast.AST, whole: bool) -> Iterator[tuple[ast.Subscript, bool]]:
    """Every tensor by index, and whether it is to be an integer."""
    if isinstance(node, ast.Subscript):
        yield node, whole
        yield from _subscripts(node.slice, True)
        return
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
        whole = True
    elif isinstance(node, ast.BinOp):
        whole = whole or isinstance(node.op, ast.FloorDiv | ast.Mod)
    elif not isinstance(node, ast.UnaryOp | ast.Tuple):
        whole = whole and isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("abs", "min", "max")
    for child in ast.iter_child_nodes(node):
        yield from _subscripts(child, whole)


def _tree(text: str) -> ast.expr:
    if not isinstance(text, str):
        raise TypeError(f"a score expression is a text, not {type(text).__name__}")
    if not text.strip() or len(text) > MOST_CHARACTERS:
        raise ValueError(f"a score expression has 1 to {MOST_CHARACTERS} characters, not {len(text.strip())}")
    if (end := _WRITTEN.match(text).end()) < len(text):
        raise ValueError(f"a score expression has no character {text[end]!r}; it is made of {_KNOWN}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", None) or "nested too deeply"
        raise ValueError(f"the score expression {_short(text)!r} cannot be read: {why}") from None


def _check_name(name: str) -> None:
    if name in VARIABLES or name in FUNCTIONS:
        raise ValueError(
            f"a tensor of a score expression is not called {name}, which is a {_what(name)}; "
            f"taken are {', '.join((*VARIABLES, *FUNCTIONS))}"
        )


def _what(name: str) -> str:
    return "variable" if name in VARIABLES else "function"


class _Reader:
    """Reads a syntax tree; ``used`` are the tables met, in order."""

    def __init__(self, tables: dict[str, Table]):
        self.nodes, self.used, self._tables = Nodes(), [], tables

    def read(self, tree: ast.expr, level: int) -> Node:
        if level > MOST_LEVELS:
            raise ValueError(f"a score expression is nested at most {MOST_LEVELS} deep")
        try:
            return self._read(tree, level + 1)
        except _Part:
            raise
        except ValueError as error:
            raise _refused(tree, str(error)) from None

    def _read(self, tree: ast.expr, level: int) -> Node:
        if isinstance(tree, ast.Constant) and type(tree.value) in (int, float):
            return self.nodes.number(tree.value)
        if isinstance(tree, ast.Name):
            return self._name(tree.id)
        if isinstance(tree, ast.Subscript):
            return self._element(tree, level)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
            args = self.read(tree.left, level), self.read(tree.right, level)
            return self.nodes.apply(_BINARY[type(tree.op)], *args)
        if isinstance(tree, ast.UnaryOp) and not isinstance(tree.op, ast.Invert):
            arg = self.read(tree.operand, level)
            if isinstance(tree.op, ast.UAdd):
                return arg
            return self.nodes.apply("not" if isinstance(tree.op, ast.Not) else "neg", arg)
        if isinstance(tree, ast.BoolOp):
            return self._joined(
                "and" if isinstance(tree.op, ast.And) else "or",
                [self.read(part, level) for part in tree.values],
            )
        if isinstance(tree, ast.Compare) and all(type(op) in _COMPARED for op in tree.ops):
            terms = [self.read(part, level) for part in (tree.left, *tree.comparators)]
            pairs = zip(tree.ops, terms, terms[1:])
            return self._joined("and", [self.nodes.apply(_COMPARED[type(op)], *pair) for op, *pair in pairs])
        if isinstance(tree, ast.Call):
            return self._call(tree, level)
        raise ValueError(f"a score expression is made of {_KNOWN}")

    def _joined(self, op: str, conditions: list[Node]) -> Node:
        first, *others = conditions
        for other in others:
            first = self.nodes.apply(op, first, other)
        return first

    def _name(self, name: str) -> Node:
        if name in VARIABLES:
            return self.nodes.variable(name)
        if name in FUNCTIONS:
            raise ValueError(
                f"{name} is called with its arguments, as {name}({', '.join('xyz'[: FUNCTIONS[name]])})"
            )
        if name in self._tables:
            index = ", ".join("hk"[: self._tables[name].dims])
            raise ValueError(f"the tensor {name} is read by its index, such as {name}[{index}]")
        raise ValueError(f"the names are {', '.join((*VARIABLES, *FUNCTIONS, *self._tables))}")

    def _element(self, tree: ast.Subscript, level: int) -> Node:
        if not isinstance(tree.value, ast.Name) or tree.value.id not in self._tables:
            given = ", ".join(self._tables) or "none"
            raise ValueError(
                f"an index follows the name of a tensor that is given with the expression ({given} is)"
            )
        table = self._tables[tree.value.id]
        index = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
        if len(index) != table.dims:
            raise ValueError(f"the tensor {table.name} has {table.dims} dimensions, and so many indices")
        nodes = tuple(self.read(part, level) for part in index)
        if table not in self.used:
            self.used.append(table)
        if len(self.used) > MOST_TABLES:
            raise ValueError(f"a score expression reads at most {MOST_TABLES} tensors")
        return self.nodes.table(self.used.index(table), table.kind, nodes)

    def _call(self, tree: ast.Call, level: int) -> Node:
        name = tree.func.id if isinstance(tree.func, ast.Name) else None
        if name not in FUNCTIONS:
            raise ValueError(f"the functions are {', '.join(FUNCTIONS)}")
        if tree.keywords or len(tree.args) != FUNCTIONS[name]:
            raise ValueError(f"{name} takes {FUNCTIONS[name]} arguments without names")
        return self.nodes.apply(name, *(self.read(part, level) for part in tree.args))


class _Part(ValueError):
    """A refusal that names its part."""


def _refused(tree: ast.expr, why: str) -> ValueError:
    try:
        part = ast.unparse(tree)
    except RecursionError:
        part = "…"
    return _Part(f"the score expression's {_short(part)!r}: {why}")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
