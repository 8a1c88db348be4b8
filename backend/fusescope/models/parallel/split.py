"""Tensor parallel: the linear layers of a Hugging Face module divided by columns and rows (Shoeybi et al.,
Megatron-LM, 2019). Each rank's modules hold plain tensors: on two H100s the dispatch of DTensor, which
torch.distributed.tensor.parallel leaves in every layer, took the host 4 ms a layer of BERT-base and the GPU
waited for it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from fusescope.models.describe.family import Split


def layers_of(base: Any, split: Split) -> nn.ModuleList:
    """The list of layers of a base model."""
    return base.get_submodule(split.layers)


def divide(base: Any, split: Split, degree: int, rank: int, group: Any) -> None:
    """Leave of the layers of a base model what rank ``rank`` of ``degree`` has, in place. The weights are
    equal on every rank, so nothing is sent; a call sums what the ranks of ``group`` have. With fewer ranks in
    it than ``degree`` the results are wrong and the time is that of a rank's share of the arithmetic."""
    for layer in layers_of(base, split):
        _prepare(layer, split, degree)
        for name in (*split.columns, *split.packed):
            linear = layer.get_submodule(name)
            bias = None if linear.bias is None else linear.bias.chunk(degree)[rank].clone()
            layer.set_submodule(name, _linear(_part(linear.weight, 0, degree, rank), bias))
        for name in split.rows:
            linear = layer.get_submodule(name)
            bias = linear.bias if rank == 0 else None  # once in the sum
            layer.set_submodule(name, Summed(_linear(_part(linear.weight, 1, degree, rank), bias), group))


class Summed(nn.Module):
    """A linear layer whose inputs are divided over the ranks of a group: the sum of their partial results."""

    def __init__(self, linear: nn.Linear, group: Any):
        super().__init__()
        self.linear, self._group = linear, group

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        partial = self.linear(given)
        dist.all_reduce(partial, group=self._group)
        return partial


def _part(weight: torch.Tensor, dim: int, degree: int, rank: int) -> torch.Tensor:
    """A copy: the whole weight is not kept, and a view of some columns would have another stride."""
    return weight.chunk(degree, dim)[rank].clone(memory_format=torch.contiguous_format)


def _prepare(layer: nn.Module, split: Split, degree: int) -> None:
    """Make every divided module an nn.Linear whose rows, in ``degree`` equal pieces, are what each rank
    has."""
    for name in (*split.columns, *split.packed, *split.rows):
        module = layer.get_submodule(name)
        if isinstance(module, nn.Linear):
            continue
        # GPT-2's Conv1D holds its weight as (in, out)
        weight, bias = module.weight.t(), module.bias
        if name in split.packed:
            weight, bias = _by_rank(weight, degree), _by_rank(bias, degree)
            owner = layer.get_submodule(name.rpartition(".")[0])
            owner.split_size = owner.split_size // degree
        layer.set_submodule(name, _linear(weight.contiguous(), bias))


def _by_rank(packed: torch.Tensor, degree: int) -> torch.Tensor:
    """Rows of query, key and value one after the other → those of the first rank (its query, key and value),
    of the second, …"""
    pieces = [part.chunk(degree) for part in packed.chunk(3)]
    return torch.cat([piece[rank] for rank in range(degree) for piece in pieces])


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear.eval()
