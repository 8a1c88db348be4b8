"""What a call returns, before it is compared: results that are not there yet are refused, and those of
earlier calls overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MOST_COPIED = 256 << 20  # bytes


def deferred(out: Any) -> str | None:
    """Why work may be left until a result is read, which nobody times; None of plain tensors."""
    for leaf in _leaves(out):
        if isinstance(leaf, torch.Tensor) and type(leaf) not in _PLAIN:
            return (
                f"it returned {type(leaf).__name__}, a subclass of torch.Tensor, whose work may be done when "
                "it is read: return a plain tensor"
            )
        if (
            isinstance(leaf, torch.Tensor)
            and leaf.layout == torch.strided
            and (leaf.is_neg() or leaf.is_conj())
        ):
            return "it returned a view that is negated or conjugated when it is read: return its values"
        if isinstance(leaf, tuple | list | dict) and not _is_plain(leaf):
            return f"it returned {type(leaf).__name__}, whose elements may be made when they are read"
    return None


def plain(out: Any) -> Any:
    """The result without what Python attributes of its tensors could replace in a comparison."""
    if isinstance(out, torch.Tensor):
        return torch.Tensor.detach(out)
    if isinstance(out, tuple | list):
        return type(out)([plain(item) for item in out]) if type(out) in (tuple, list) else out
    return out


def copies(out: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(tensor, copy) of a result as it is when its call returns, in the caller's stream; none of large ones
    on a GPU, where they may not fit."""
    several = [leaf for leaf in _leaves(out) if _dense(leaf)]
    size = sum(leaf.numel() * leaf.element_size() for leaf in several if leaf.is_cuda)
    return [(leaf, leaf.clone()) for leaf in several] if size <= _MOST_COPIED else []


def spoil(out: Any, inputs: Mapping[str, Any]) -> None:
    """Overwrite a result that has been looked at with NaN, so that no later call can return it again. What
    shares memory with an input stays."""
    taken = {leaf.untyped_storage().data_ptr() for leaf in _leaves(tuple(inputs.values())) if _dense(leaf)}
    for leaf in _leaves(out):
        if _dense(leaf) and leaf.is_floating_point() and leaf.untyped_storage().data_ptr() not in taken:
            try:
                with torch.inference_mode():  # permits it of tensors made in this mode, too
                    torch.Tensor.fill_(leaf, math.nan)
            except RuntimeError:  # elements that share memory: nothing there is written
                continue


def _dense(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and type(leaf) in _PLAIN and leaf.layout == torch.strided


def _leaves(out: Any) -> Iterator[Any]:
    """The result, and what plain containers in it hold."""
    yield out
    if isinstance(out, tuple | list | dict) and _is_plain(out):
        for item in out.values() if isinstance(out, dict) else out:
            yield from _leaves(item)


def _is_plain(out: tuple | list | dict) -> bool:
    """Whether reading an element runs no code of its class; named tuples are plain."""
    base = next(kind for kind in (tuple, list, dict) if isinstance(out, kind))
    return all(
        getattr(type(out), name, None) is getattr(base, name, None)
        for name in ("__iter__", "__getitem__", "__getattribute__", "__len__", "values")
    )
