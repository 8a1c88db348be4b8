"""Whose an implementation is, from its name alone."""

from __future__ import annotations

import re

_OURS = re.compile(r"(v\d+_|cpu).*|auto|attention|hand_fused|(fused|fusescope)(-.*)?")


def kind(impl: str) -> str:
    """ "ours", "user" or "peer", from the name's form: vN_idea and cpu* are our kernels, auto and attention
    what chooses among them, fused and fusescope* our execution modes of a model, file.py:function is a
    user's."""
    if ".py:" in impl:
        return "user"
    return "ours" if _OURS.fullmatch(impl) else "peer"
