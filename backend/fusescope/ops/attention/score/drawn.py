"""The tensors of a score expression whose case names none: of the sizes that its indices need, with drawn
values."""

from __future__ import annotations

from fusescope.core.score import Expression, Node, bounds_with, parse, tables_of
from fusescope.ops.attention.score.score import Score
from fusescope.ops.common.tensors import generator_for

_DOCUMENTS = 8
_MOST = 1 << 22  # elements of a dimension; an index beyond reads the last


def score(text: str, values, device, seed: int) -> Score:
    """The expression of a case on the device. Integers are document numbers, _DOCUMENTS runs of equal ones;
    slope is that of ALiBi, 2^(−8 (i + 1) / n); anything else is normal."""
    import torch

    kinds = tables_of(text)
    expression = parse(text, kinds)
    generator, made = generator_for(device, seed + 1), {}
    for place, table in enumerate(expression.tables):
        sizes = _sizes(expression, place, values)
        count = torch.arange(sizes[-1], device=device)
        if table.kind == "int":
            of = (count * _DOCUMENTS // sizes[-1]).int()
        elif table.name == "slope" and table.dims == 1:
            of = torch.exp2(-8 * (count + 1) / sizes[-1])
        else:
            of = torch.randn(sizes, generator=generator, device=device)
        made[table.name] = of.expand(sizes).contiguous()
    return Score(text, **made)


def _sizes(expression: Expression, place: int, values) -> tuple[int, ...]:
    """One more than the largest index in each dimension."""
    ranges = {
        "b": (0, values["batch"] - 1),
        "h": (0, values["heads"] - 1),
        "q": (values["seq_k"] - values["seq"], values["seq_k"] - 1),
        "k": (0, values["seq_k"] - 1),
        "table": (0, _DOCUMENTS - 1),
    }
    found: list[int] = [1] * expression.tables[place].dims

    def walk(node: Node) -> None:
        for arg in node.args:
            walk(arg)
        if node.op == "table" and node.value == place:
            for i, index in enumerate(node.args):
                found[i] = min(_MOST, max(found[i], bounds_with(index, ranges)[1] + 1))

    walk(expression.root)
    return tuple(found)
