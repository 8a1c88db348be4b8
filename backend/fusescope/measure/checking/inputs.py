"""The tensors among a case's inputs: noticed when a call changes them, put back, and given other values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Kept:
    """Inputs and copies of them by name (see tensors); written: those that a call is meant to write."""

    inputs: Mapping[str, Any]
    copies: Mapping[str, torch.Tensor]
    written: tuple[str, ...] = ()

    def restore(self) -> list[str]:
        """Undo changes, so that the next implementation finds the same inputs (and none finds its result
        written already); the names of what had changed and is not meant to be written."""
        current = dict(tensors(self.inputs))
        changed = [name for name, tensor in current.items() if not same(tensor, self.copies[name])]
        for name in changed:
            current[name].data.copy_(self.copies[name])
        _settle(current[name] for name in changed)
        return [name for name in changed if name not in self.written]

    def vary(self, number: int) -> None:
        """Give every floating-point input other values, the same for the same ``number``: the kept ones,
        moved on by so many places (the last ones first) and up to 1.12 times as large, so that their sum is
        another, too."""
        for name, tensor in tensors(self.inputs):
            numbers = tensor.dtype.is_floating_point and tensor.element_size() > 1  # of fp8 weights: bits
            if numbers and name not in self.written:
                tensor.data.copy_(self.copies[name].roll(number).mul_(1 + number % 1021 / 8192))
        _settle(tensor for _, tensor in tensors(self.inputs))


def _settle(written: Iterable[torch.Tensor]) -> None:
    """Wait until what was written is there for every stream: graphs are replayed on one of their own, and
    would read gigabytes that are still being copied."""
    for device in {tensor.device for tensor in written if tensor.is_cuda}:
        torch.cuda.synchronize(device)


def tensors(inputs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every tensor among the inputs, those in lists and tuples too."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from ((f"{name}[{i}]", v) for i, v in enumerate(value) if isinstance(v, torch.Tensor))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bitwise equality, so that NaN equals itself and -0 differs from 0."""
    if a.dtype.is_floating_point:
        kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        a, b = a.contiguous().view(kind), b.contiguous().view(kind)
    return torch.equal(a, b)
