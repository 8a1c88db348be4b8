"""What decides how a model generates: time to the first token and per token, tokens per second, memory by
what holds it, and how near a step is to the rate of memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fusescope.models.describe import costs
from fusescope.models.describe.family import EIGHT_BIT
from fusescope.models.describe.modes import MODES
from fusescope.models.run import generation
from fusescope.models.run.build import Model


def report(
    run: Callable[[], Any],
    mode: str,
    model: Model,
    inputs: Mapping[str, Any],
    times: Mapping[str, float],
    memory: Mapping[str, int | None],
    gbps: float | None,
) -> dict[str, Any] | None:
    """{"first_ms", "token_ms": {"p50", "p99"}, "tokens_per_s", "memory": {"weights_bytes", "cache_bytes",
    "activations_bytes"}, "roof_share"}; None for a model without phases, and what a phase does not have.

    run: one call of the mode, as modes.make has it. first_ms: of a prefill without the head, of a generation
    with it; token_ms: of one decoded token of each sequence; tokens_per_s: of the batch, while it decodes.
    times: percentiles of calls in ms; memory: of the record; gbps: the measured rate of memory, which
    roof_share is a share of: the least bytes of a step over its median time. activations_bytes: what a call
    allocates on top, known of a GPU. Quantised weights count with their 8 bits, although the mode reads more
    for more than 16 sequences (run/decoder/quantised.py).
    """
    case = inputs["case"]
    phase, first, token = case.get("phase"), None, None
    if phase is None:
        return None
    if phase == "prefill":
        first = times["p50"]
    elif phase == "decode":
        token = {"p50": times["p50"], "p99": times["p99"]}
    else:
        with torch.no_grad():
            found = generation.timed(run.marked, model.device)
        first = float(np.median(found["first_ms"]))
        p50, p99 = np.percentile(found["token_ms"], (50, 99))
        token = {"p50": float(p50), "p99": float(p99)}
    share, own, quantised = None, memory["weights_bytes"], MODES[mode].quantised
    if quantised in EIGHT_BIT:
        own = costs.weight_bytes(model.name, case, model.dtype, quantised)
    if token and gbps:
        middle = case["seq"] + (case["new"] // 2 if phase == "generate" else 0)
        step = {k: v for k, v in case.items() if k != "new"} | {"phase": "decode", "seq": middle}
        least = costs.cost(model.name, step, model.dtype, quantised).bytes
        share = least / (token["p50"] / 1e3) / (gbps * 1e9)
    return {
        "first_ms": first,
        "token_ms": token,
        "tokens_per_s": case["batch"] / token["p50"] * 1e3 if token else None,
        "memory": {
            "weights_bytes": own,
            "cache_bytes": costs.cache_bytes(model.name, case, model.dtype, quantised),
            "activations_bytes": memory["call_bytes"],
        },
        "roof_share": share,
    }
