"""Fake (shape-only) kernels, which torch.compile, opcheck and meta tensors need; given by the operators,
registered on loading."""

from __future__ import annotations

from collections.abc import Callable

_given: dict[str, Callable] = {}
_registered: set[str] = set()
_loaded = False


def register_fakes(functions: dict[str, Callable]) -> None:
    """{operator: fn(*args, impl) -> empty tensor of the result's shape, dtype and device}; of one operator
    the first counts.

    May be called at import time and any number of times, without torch: registered when the library is
    loaded.
    """
    for op, function in functions.items():
        _given.setdefault(op, function)
    if _loaded:
        register_given()


def register_given() -> None:
    """Hand to torch what was given so far; called once the library, which declares the operators, is
    loaded."""
    global _loaded
    import torch

    _loaded = True
    for op, function in _given.items():
        if op not in _registered and hasattr(torch.ops.fusescope, op):
            torch.library.register_fake(f"fusescope::{op}")(function)
            _registered.add(op)
