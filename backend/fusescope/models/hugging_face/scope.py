"""One forward of a model: what may be kept for its length, and the proof that its masks were attended by.

A model that takes masks from us and never calls our attention computes attention itself, with a mask that it
misreads. Its code may hide that from ``support``; hooks on the model do not miss it.
"""

from __future__ import annotations

import threading
from typing import Any

from fusescope.core.errors import Unsupported


class Scope:
    """A forward that runs: how many masks were made and attention calls done in it, and what is kept."""

    def __init__(self, model):
        self.model = model
        self.masks = self.calls = 0
        self.kept: dict[Any, Any] = {}


class _Running(threading.local):
    def __init__(self):
        self.scopes: list[Scope] = []


_running = _Running()


def current() -> Scope | None:
    """The innermost forward of a watched model that runs in this thread."""
    return _running.scopes[-1] if _running.scopes else None


def watch(model, name: str) -> None:
    """Makes every forward of the model a scope while its attn_implementation is ``name``.

    A forward in which masks were made and attention was never called, or of which attention weights are
    wanted, raises Unsupported. Nothing is looked
    at while torch.compile traces.
    """
    if "_fusescope_name" not in vars(model):
        model.register_forward_pre_hook(_begin, with_kwargs=True)
        model.register_forward_hook(_end, always_call=True)
    model._fusescope_name = name


def _begin(model, _args, given) -> None:
    import torch

    if not torch.compiler.is_compiling() and _is_ours(model):
        _refuse_weights(model, given)
        _leave(model)
        _running.scopes.append(Scope(model))


def _end(model, _args, output) -> None:
    """``output`` is None where the forward raised."""
    import torch

    if torch.compiler.is_compiling() or not _is_ours(model):
        return
    ended = _leave(model)
    if ended is None:
        return
    if (around := current()) is not None:
        around.masks += ended.masks
        around.calls += ended.calls
    if output is not None and ended.masks and not ended.calls:
        raise Unsupported(
            f'{type(model).__name__} does not support attn_implementation="{model._fusescope_name}": it took '
            'a mask meant for our attention and computed attention by itself; use "eager"'
        )


def _refuse_weights(model, given) -> None:
    """Hugging Face collects the attention weights that attention functions return, and says nothing where
    these return none."""
    asked = given.get("output_attentions")
    if asked or (asked is None and getattr(model.config, "output_attentions", False)):
        raise Unsupported(
            f'{type(model).__name__}: attn_implementation="{model._fusescope_name}" gives no attention '
            'weights (output_attentions=True); use "eager" for them'
        )


def _is_ours(model) -> bool:
    return model.config._attn_implementation == model._fusescope_name


def _leave(model) -> Scope | None:
    """Ends the model's scope, and those inside that a KeyboardInterrupt left open."""
    for number, scope in enumerate(_running.scopes):
        if scope.model is model:
            del _running.scopes[number + 1 :]
            return _running.scopes.pop()
    return None
