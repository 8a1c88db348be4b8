"""The fused encoder on the ranks of a layout: each holds its heads and FFN columns, and the products in front
of bias + residual + LayerNorm are summed over the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from fusescope.models.run.build import Model
from fusescope.models.run.fused_encoder import FusedEncoder, Part


class FusedShare:
    """share(ids) -> hidden states (B, S, width) of token ids (B, S), by what rank ``rank`` of ``degree`` has;
    sums go over the ranks of ``group``. B may differ from call to call; the mask is that of the inputs."""

    def __init__(
        self, model: Model, inputs: Mapping[str, Any], degree: int = 1, rank: int = 0, group: Any = None
    ):
        part = (
            Part(degree, rank, lambda product: dist.all_reduce(product, group=group))
            if degree > 1
            else Part()
        )
        self._encoder = FusedEncoder(model, inputs["case"], part)
        self._encoder.by_rows = model.device.startswith("cuda")
        self._inputs, self._plan = dict(inputs), self._encoder.plan(inputs)
        self.weights_bytes = sum(tensor.nbytes for tensor in self._encoder.weights.values())

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        self._encoder.case["batch"] = len(ids)
        return self._encoder(self._inputs | {"input_ids": ids}, plan=self._plan)
