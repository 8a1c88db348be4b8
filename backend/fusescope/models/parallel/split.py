"""Tensor parallel: the linear layers of a Hugging Face module divided by columns and rows, as
torch.distributed.tensor.parallel does it, or cut locally to time one rank's share without the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fusescope.models.describe.family import Split


def layers_of(base: Any, split: Split) -> nn.ModuleList:
    """The list of layers of a base model."""
    return base.get_submodule(split.layers)


def parallelize(base: Any, split: Split, mesh: Any) -> None:
    """Divide the layers of a base model over the ranks of a one-dimensional mesh, in place. All ranks of the
    mesh call it with equal weights; nothing is sent."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {name: ColwiseParallel() for name in (*split.columns, *split.packed)}
    plan |= {name: RowwiseParallel() for name in split.rows}
    for layer in layers_of(base, split):
        _prepare(layer, split, mesh.size())
        # the weights are equal on every rank: each takes its part of its own
        parallelize_module(layer, mesh, plan, src_data_rank=None)


def cut(base: Any, split: Split, degree: int) -> None:
    """Leave of the layers what the first of ``degree`` ranks has, in place. Its results are wrong, because
    nothing is summed over ranks; its time is that of a rank's share of the arithmetic."""
    for layer in layers_of(base, split):
        _prepare(layer, split, degree)
        for names, dim in (((*split.columns, *split.packed), 0), (split.rows, 1)):
            for name in names:
                linear = layer.get_submodule(name)
                # a copy: a view of some columns has another stride than a rank's weight
                weight = linear.weight.chunk(degree, dim)[0].contiguous()
                bias = None if linear.bias is None else linear.bias
                if dim == 0 and bias is not None:
                    bias = bias.chunk(degree)[0]
                layer.set_submodule(name, _linear(weight, bias))


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
