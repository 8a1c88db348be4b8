"""attention() as compiled code calls it with a plan: an operator that finds the plan and chooses the kernel
when it runs, so that one graph serves all masks of a shape.

What the operator of the library is given, kernel, buffer and layout, differs from plan to plan; as constants
of a graph they would make one graph per plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusescope.ops.attention.plan import plan as plans

_SCHEMA = (
    "attention_planned(Tensor q, Tensor k, Tensor v, Tensor plan, float? scale, Tensor? bias, bool out_bshd) "
    "-> Tensor"
)
_given: dict[str, Callable] = {}
_library: list[Any] = []  # torch forgets the operator with it


def give(attention: Callable, fake: Callable) -> None:
    """attention(q, k, v, plan, bias=, scale=, out_bshd=), and what gives a tensor like its result; may be
    called without torch."""
    _given.update(attention=attention, fake=fake)


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


def _run(q, k, v, plan, scale, bias, out_bshd):
    plan = plans.of_handle(plan)
    return _given["attention"](q, k, v, plan, bias=bias, scale=scale, out_bshd=out_bshd)
