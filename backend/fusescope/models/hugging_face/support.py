"""Which Hugging Face models attn_implementation="fusescope" serves: those that declare to take masks as
sdpa does, or would but for a soft-cap or sinks, and whose code asks the attention registry for the function
that it calls.

A class that computes attention itself would be given a mask that is meant for our attention (bool, or None
where nothing is masked but by causality) and misread it. What the class declares and what its code names
decide, so that classes loaded from remote code are judged too.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import CodeType, FunctionType

from fusescope.core.errors import Unsupported

_SCORED = frozenset({"softcap", "s_aux"})  # keywords of transformers' attention functions


def refuse(model, name: str) -> None:
    """Raises Unsupported for a model that would misread a mask, or not use our attention at all."""
    why = why_not(model)
    if why:
        raise Unsupported(
            f'{type(model).__name__} does not support attn_implementation="{name}": {why}; use "eager", or, '
            f'where it is a part of a larger model, a dict by sub-config, as {{"": "{name}", '
            '"vision_config": "eager"}'
        )


def why_not(model) -> str | None:
    """Why our attention cannot serve a model, or a class; None where it can.

    Of a part that is built by an AutoModel nothing is known here: it is asked when it is built.
    """
    cls = model if isinstance(model, type) else type(model)
    if not asks_registry(cls):
        return "no code of it asks the attention registry of transformers"
    if _has_table_of_attentions(cls):
        return "its code chooses among attention classes of its own"
    if not model._supports_sdpa and not (model._supports_flex_attn and _gives_scores(cls)):
        return "it does not declare that it takes masks as sdpa does (_supports_sdpa)"
    return None


def caps_scores(cls, config) -> bool:
    """Whether a class gives its attention the soft-cap of this configuration. PyTorch's SDPA has none, and
    transformers 5.17 leaves it out without a word."""
    of_text = config.get_text_config()
    return getattr(of_text, "attn_logit_softcapping", None) is not None and _gives_scores(cls)


@lru_cache(maxsize=1024)
def asks_registry(cls) -> bool:
    """Whether code of a class takes its attention from transformers' registry."""
    from transformers import AttentionInterface
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

    return any(
        isinstance(found, AttentionInterface)
        or (isinstance(found, type) and issubclass(found, _BaseAutoModelClass))
        for found in _reached(cls)
    )


@lru_cache(maxsize=1024)
def _gives_scores(cls) -> bool:
    """Whether its code gives a soft-cap or sinks to the attention function: Gemma 2 and gpt-oss deny sdpa for
    these alone, which our attention takes (attend.py). What denies FlexAttention too, as DeepSeek V4, may
    compute with the mask itself."""
    return any(
        not _SCORED.isdisjoint(_texts(found.__code__))
        for found in _reached(cls)
        if isinstance(found, FunctionType) and not _of_torch(found)
    )


@lru_cache(maxsize=1024)
def _has_table_of_attentions(cls) -> bool:
    """Classes by attn_implementation, in code of this model alone: models inside it are asked themselves."""
    from transformers import PreTrainedModel

    def inside(found) -> bool:
        return isinstance(found, type) and issubclass(found, PreTrainedModel) and found is not cls

    return any(isinstance(found, dict) and "eager" in found for found in _reached(cls, stop=inside))


def _reached(cls, stop=lambda found: False):
    """What code of the class names in its module's globals and closures, through the modules, functions and
    tables of classes among that, but not into what ``stop`` says."""
    seen, unvisited = set(), [cls]
    while unvisited:
        thing = unvisited.pop()
        if id(thing) not in seen:
            seen.add(id(thing))
            yield thing
            if not stop(thing):
                unvisited += _named_by(thing)


def _named_by(thing) -> list:
    import torch
    from transformers import PreTrainedModel

    if isinstance(thing, type) and issubclass(thing, torch.nn.Module):
        own = [b for b in thing.__mro__ if b is not PreTrainedModel and not _of_torch(b)]
        return [m for base in own for m in vars(base).values() if callable(m) or isinstance(m, property)]
    if isinstance(thing, dict):
        return [value for value in thing.values() if isinstance(value, type)]
    if isinstance(thing, property):
        return [thing.fget]
    if isinstance(thing, FunctionType) and not _of_torch(thing):
        names = set(_names(thing.__code__))
        found = [value for name, value in thing.__globals__.items() if name in names]
        return found + list(inspect.getclosurevars(thing).nonlocals.values()) + [inspect.unwrap(thing)]
    return []


def _of_torch(thing) -> bool:
    return (thing.__module__ or "").partition(".")[0] == "torch"


def _texts(code: CodeType):
    """The text constants of a function; names of keyword arguments are in tuples among them."""
    for const in code.co_consts:
        yield from const if isinstance(const, tuple) else (const,)


def _names(code: CodeType):
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
