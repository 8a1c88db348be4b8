"""Pipeline parallel: one stage of a Hugging Face base model, and the schedule that feeds it micro-batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fusescope.models.describe.family import Split
from fusescope.models.parallel.split import layers_of


class Stage(nn.Module):
    """Layers first … last−1 of a base model: token ids (B, S) in the first stage, hidden states (B, S, width)
    in the others → hidden states."""

    def __init__(self, base: Any, split: Split, number: int, count: int, call: Any):
        super().__init__()
        self.first, self.base, self._call = number == 0, base, call
        layers = layers_of(base, split)
        share = len(layers) // count
        keep = layers[number * share : (number + 1) * share]
        base.set_submodule(split.layers, nn.ModuleList(keep))
        if not self.first:
            for name in split.inputs:
                base.set_submodule(name, _Given())
            for name in split.positions:
                base.set_submodule(name, _Nothing())
            base.set_input_embeddings(None) if not split.inputs else None
        if number + 1 < count and split.norm:
            base.set_submodule(split.norm, nn.Identity())

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        name = "input_ids" if self.first else "inputs_embeds"
        return self._call(self.base, **{name: given})


class Pipeline:
    """The stages of one replica under torch.distributed.pipelining's GPipe schedule, forward only.

    group: of the ranks that hold the stages, in order. ``run(ids)`` gives the last stage's hidden states
    there, None elsewhere; every rank of the group calls it.
    """

    def __init__(self, stage: Stage, number: int, count: int, micro_batches: int, device: Any, group: Any):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        self.first, self.last = number == 0, number + 1 == count
        self._schedule = ScheduleGPipe(
            PipelineStage(stage, number, count, torch.device(device), group=group), micro_batches
        )

    def run(self, ids: torch.Tensor) -> torch.Tensor | None:
        found = self._schedule.eval(ids) if self.first else self._schedule.eval()
        return found if self.last else None


class _Given(nn.Module):
    """In the place of BERT's embeddings: the hidden states of the stage before."""

    def forward(self, inputs_embeds=None, **_: Any):
        return inputs_embeds


class _Nothing(nn.Module):
    """In the place of a table of positions: they are in the hidden states already."""

    def forward(self, positions):
        return torch.zeros((), device=positions.device)
