"""The matrix products of a model's layers alone: what a call would take if everything else were free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.models.run import weights
from fusescope.models.run.build import Model


def of(model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """run() of QKV, output and FFN products of every layer on the padded tokens (to decode one of each
    sequence), by torch (cuBLAS), on fixed random rows."""
    config, case = model.config, inputs["case"]
    ours = weights.ours(model.family, config, model.module)
    rows = case["batch"] * (1 if case.get("phase") == "decode" else case["seq"])
    first = "gate_up" if config.activation == "silu" else "ffn1"
    widths = {"qkv": config.hidden, "output": config.inner, first: config.hidden, "ffn2": config.ffn}
    given = {
        n: torch.randn(rows, w, device=model.device).to(getattr(torch, model.dtype))
        for n, w in widths.items()
    }
    pairs = [(given[n], ours[f"layers.{i}.{n}.weight"].t()) for i in range(config.layers) for n in widths]

    def run():
        for rows_of, weight in pairs:
            out = rows_of @ weight
        return out

    return run
