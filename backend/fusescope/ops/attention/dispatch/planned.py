"""attention() as compiled code calls it with a plan: an operator that finds the plan and chooses the kernel
when it runs, so that one graph serves all masks of a shape.

What the operator of the library is given, kernel, buffer and layout, differs from plan to plan; as constants
of a graph they would make one graph per plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fusescope.ops.attention.plan import plan as plans
from fusescope.ops.attention.score.operators import Modifiers
from fusescope.ops.attention.score.score import Lowered

_SCHEMA = (
    "attention_planned(Tensor q, Tensor k, Tensor v, Tensor plan, float? scale, Tensor? bias, bool out_bshd, "
    "float? softcap=None, Tensor? sinks=None, str? header=None, Tensor[]? tables=None) -> Tensor"
)
_given: dict[str, Callable] = {}
_library: list[Any] = []  # torch forgets the operator with it


def give(attention: Callable, fake: Callable) -> None:
    """attention(), and what gives a tensor like its result; may be called without torch."""
    _given.update(attention=attention, fake=fake)


def attend(q, k, v, plan: plans.Plan, scale, bias, out_bshd: bool, modifiers: Modifiers | None):
    """attention() of checked arguments, while tracing."""
    import torch

    load()
    given: tuple = scale, bias, out_bshd
    if modifiers is not None:
        softcap, sinks, score = modifiers
        given += softcap, sinks
        if score is not None:
            given += one_line(score.header), list(score.tables)
    return torch.ops.fusescope.attention_planned.default(q, k, v, plan.handle, *given)


def one_line(header: str) -> str:
    """A header as the operator takes it: Inductor writes the values of a graph into comments of the code that
    it makes, and what follows a line's end is no comment."""
    return json.dumps(header)


one_line._dynamo_marked_constant = True  # as in tracing.py


def load() -> bool:
    """Registers torch.ops.fusescope.attention_planned; done while tracing."""
    import torch

    if not _library:
        library = torch.library.Library("fusescope", "FRAGMENT")
        library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl("attention_planned", _run, "CompositeExplicitAutograd")
        torch.library.register_fake("fusescope::attention_planned", _given["fake"], lib=library)
        _library.append(library)
    return True


load._dynamo_marked_constant = True  # as in tracing.py


def _run(q, k, v, plan, scale, bias, out_bshd, softcap=None, sinks=None, header=None, tables=None):
    score = None if header is None else Lowered(json.loads(header), tables)
    given = dict(bias=bias, scale=scale, out_bshd=out_bshd, softcap=softcap, sinks=sinks, score=score)
    return _given["attention"](q, k, v, plans.of_handle(plan), **given)
