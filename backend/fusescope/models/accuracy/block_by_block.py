"""A model in another precision, a block at a time: a reference in float64 next to a model in fp16, of which
it would take four times the memory as a whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

Change = Callable[[str, Any], Any]
"""(name, converted parameter) → the parameter to compute with."""


def convert(module, dtype, change: Change | None = None):
    """A module of the same weights that computes in this dtype. The blocks in its module lists are converted
    when they are called and let go of afterwards, everything else and all buffers at once; what floats alone.
    While a block is not called its weights have the dtype that they are kept in, also for code that asks."""
    change = change or (lambda name, tensor: tensor)
    shared = {id(t): t for t in (*module.parameters(), *module.buffers())}
    found = copy.deepcopy(module, shared)
    blocks = {block: name for name, block in _blocks(found)}  # once, whatever lists hold it
    inside = {part for block in blocks for part in block.modules()}
    kept: dict[int, Any] = {}  # so that tied weights are one tensor still
    for name, part in found.named_modules():
        for own, buffer in part._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                part._buffers[own] = buffer.to(dtype)
        if part not in inside:
            _exchange(part, name, dtype, change, kept)
    for block, name in blocks.items():
        _convert_when_called(block, name, dtype, change)
    return found


def _blocks(module, above: str = "") -> Iterator[tuple[str, Any]]:
    """(name, module) of what the outermost module lists hold."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.ModuleList):
            yield from ((f"{above}{name}.{number}", block) for number, block in child.named_children())
        else:
            yield from _blocks(child, f"{above}{name}.")


def _convert_when_called(block, name: str, dtype, change: Change) -> None:
    before: list[tuple[dict, dict]] = []

    def enter(*_):
        kept: dict[int, Any] = {}
        for inner, part in block.named_modules():
            before.append((part._parameters, dict(part._parameters)))
            _exchange(part, f"{name}.{inner}" if inner else name, dtype, change, kept)

    def leave(*_):
        while before:
            held, own = before.pop()
            held.update(own)

    block.register_forward_pre_hook(enter)
    block.register_forward_hook(leave, always_call=True)


def _exchange(part, name: str, dtype, change: Change, kept: dict[int, Any]) -> None:
    """Converted parameters in place of a module's own, which others share."""
    for own, parameter in part._parameters.items():
        if parameter is None or not parameter.is_floating_point():
            continue
        if id(parameter) not in kept:
            converted = change(f"{name}.{own}" if name else own, parameter.detach().to(dtype))
            kept[id(parameter)] = torch.nn.Parameter(converted, requires_grad=False)
        part._parameters[own] = kept[id(parameter)]
