"""A score expression as C++: the header that a kernel is compiled with (cuda/attention/score.cuh,
cpu_score.h).

What is of batch entry and head alone is computed once for each of them, what is of the query besides once
for each row, and the rest for each score.
"""

from __future__ import annotations

import re
import struct

from fusescope.core.score.nodes import COMPARISONS, Node
from fusescope.core.score.parse import Expression

_LEVELS = (frozenset("bh"), frozenset("bhq"))
_TYPES = {"float": "float", "bool": "bool", "int": "int"}
_INFIX = {"+": "+", "-": "-", "*": "*", "and": "&", "or": "|", **{op: op for op in COMPARISONS}}
_HEAD = """// {text}
#pragma once
namespace score_expression {{
constexpr int kTables = {tables};
constexpr unsigned kIntegers = {integers}u, kMatrices = {matrices}u;  // a bit for each table
struct Head {{
{head_members}}};
struct Row {{
{row_members}}};
SCORE_FUNCTION Head of_head([[maybe_unused]] const ScoreTable* tables, [[maybe_unused]] int b,
                            [[maybe_unused]] int h) {{
{head}}}
SCORE_FUNCTION Row of_row([[maybe_unused]] const ScoreTable* tables, [[maybe_unused]] const Head& head,
                          [[maybe_unused]] int b, [[maybe_unused]] int h, [[maybe_unused]] int q) {{
{row}}}
SCORE_FUNCTION float of_score([[maybe_unused]] const ScoreTable* tables, [[maybe_unused]] const Head& head,
                              [[maybe_unused]] const Row& row, [[maybe_unused]] int b, [[maybe_unused]] int h,
                              [[maybe_unused]] int q, [[maybe_unused]] int k, [[maybe_unused]] float k_base,
                              [[maybe_unused]] float k_offset, [[maybe_unused]] float score) {{
  [[maybe_unused]] const float k_float = k_base + k_offset;
{score}}}
}}  // namespace score_expression
"""


def header(expression: Expression) -> str:
    """The text of the header; its first line is the expression as written, and nothing else of it depends on
    names."""
    order = _order(expression.root)
    places = {node: place for place, node in enumerate(order)}
    used_above: dict[Node, int] = {expression.root: 2}  # the highest level that uses a node
    for node in order:
        for arg in node.args:
            used_above[arg] = max(used_above.get(arg, 0), _level(node))
    kept = [[n for n in order if _level(n) == level < used_above.get(n, 0)] for level in (0, 1)]

    def name(node: Node, level: int) -> str:
        if node.op == "number":
            return _number(node)
        if node.op in ("score", "b", "h", "q", "k"):
            return node.op
        if _is_key(node):
            return "k_float"
        local = f"n{places[node]}"
        return local if _level(node) == level else f"{('head', 'row')[_level(node)]}.{local}"

    def lines(level: int, result: str) -> str:
        text = [f"  return {result};"]
        for node in reversed(order):
            local = f"n{places[node]}"
            if _level(node) == level and any(re.search(rf"(?<![.\w]){local}\b", line) for line in text):
                text.append(f"  const {_type(node)} {local} = {_code(node, lambda a: name(a, level))};")
        return "\n".join(reversed(text)) + "\n"

    results = [f"{{{', '.join(f'n{places[n]}' for n in nodes)}}}" for nodes in kept]
    return _HEAD.format(
        text=expression.text,
        tables=len(expression.tables),
        integers=sum(1 << i for i, table in enumerate(expression.tables) if table.kind == "int"),
        matrices=sum(1 << i for i, table in enumerate(expression.tables) if table.dims == 2),
        head_members="".join(f"  {_type(n)} n{places[n]};\n" for n in kept[0]),
        row_members="".join(f"  {_type(n)} n{places[n]};\n" for n in kept[1]),
        head=lines(0, results[0]),
        row=lines(1, results[1]),
        score=lines(2, name(expression.root, 2)),
    )


def _order(root: Node) -> list[Node]:
    """Every node once, after its arguments; neither numbers nor variables."""
    found: dict[Node, None] = {}

    def walk(node: Node) -> None:
        if node in found:
            return
        for arg in node.args:
            walk(arg)
        if node.args:
            found[node] = None

    walk(root)
    return list(found)


def _level(node: Node) -> int:
    return next((level for level, of in enumerate(_LEVELS) if node.depends <= of), 2)


def _type(node: Node) -> str:
    return "int64_t" if node.wide else _TYPES[node.kind]


def _number(node: Node) -> str:
    if node.kind == "bool":
        return str(node.value).lower()
    if node.kind == "int":
        return f"({node.value})" if node.value > -(1 << 31) else "INT32_MIN"
    return _float(node.value)


def _float(value: float) -> str:
    text = format(struct.unpack("<f", struct.pack("<f", value))[0], ".9g")
    return f"({text if set('.e') & set(text) else text + '.'}f)"


def _is_key(node: Node) -> bool:
    return node.op == "float" and node.args[0].op == "k"


def _product_with_distance(node: Node, name) -> str | None:
    """A product with a distance from the key, such as slope[h] * (k - q): that of the tile's first key,
    which is computed once, and one multiply-add for each further. Distances are exact, so nothing
    cancels."""
    for factor, distance in (node.args, node.args[::-1]):
        if node.kind != "float" or distance.op != "-" or _level(factor) > 1:
            continue
        left, right = distance.args
        if _is_key(left) and _level(right) <= 1:
            first = f"{name(factor)} * (k_base - {name(right)})"
            return f"score_math::fused({name(factor)}, k_offset, {first})"
        if _is_key(right) and _level(left) <= 1:
            first = f"{name(factor)} * ({name(left)} - k_base)"
            return f"score_math::fused(-{name(factor)}, k_offset, {first})"
    return None


def _code(node: Node, name) -> str:
    if node.op == "*" and (product := _product_with_distance(node, name)):
        return product
    args = [name(arg) for arg in node.args]
    if node.wide and node.op not in ("where", "table"):
        args = [f"int64_t({arg})" for arg in args]
    op = node.op
    if op in _INFIX:
        return f"{args[0]} {_INFIX[op]} {args[1]}"
    if op == "/" and node.args[1].op == "number" and 1e-30 < abs(node.args[1].value) < 1e30:
        return f"{args[0]} * {_float(1 / node.args[1].value)}"
    if op == "table":
        return f"score_math::{node.kind}_at(tables[{node.value}], {', '.join(args)})"
    if op == "where":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if op in ("neg", "not"):
        return f"{'-' if op == 'neg' else '!'}{args[0]}"
    if op == "float":
        return f"float({args[0]})"
    names = {"/": "divided", "//": "floor_divided", "%": "floor_remainder", "min": "least", "max": "largest"}
    return f"score_math::{names.get(op, op)}({', '.join(args)})"
