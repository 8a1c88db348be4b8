"""The way "fused": the fused encoder, on CUDA as one captured graph per shape bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusescope.models.run import masking
from fusescope.models.run.build import Model
from fusescope.models.run.fused_encoder import PACKABLE, FusedEncoder

# of a (batch, seq): at most so many graphs, and on average half a step of 3 % of the padded tokens too many
_BUCKETS = 32
_STEP = 64  # tokens: what the products work on at a time
_TRIALS = 20
_QUEUING = 20_000_000  # cycles, some 10 ms: longer than the host takes to launch the trials


def bucket(tokens: int, batch: int, seq: int) -> int:
    """Rows to pack ``tokens`` into: the next multiple of a step that makes at most 32 buckets, never above
    batch · seq."""
    step = max(_STEP, -(-batch * seq // _BUCKETS // _STEP) * _STEP)
    return min(-(-tokens // step) * step, batch * seq)


def make(model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """run() of the fused encoder on these inputs; see running.make."""
    encoder = FusedEncoder(model, inputs["case"])
    if not model.device.startswith("cuda"):
        encoder.by_rows = False
        plan = masking.plan_of(inputs, model.device) if inputs["mask"].name not in PACKABLE else None

        def run():
            return encoder(inputs, plan=plan)

        run.graph = False
        return run
    from fusescope.models.run.modes import captured

    plan = masking.plan_of(inputs, model.device) if inputs["mask"].name not in PACKABLE else None
    if plan is None and not encoder.packs(inputs):
        encoder.by_rows = _rows_are_faster(encoder, inputs)
    model.choices[choice(inputs)] = encoder.by_rows
    graphs: dict[int, Callable[[], Any]] = {}

    def graph():
        """The graph of the bucket that the lengths fall into now; captured at its first use."""
        total = (
            bucket(sum(inputs["lengths"]), inputs["case"]["batch"], inputs["case"]["seq"])
            if encoder.packs(inputs)
            else 0
        )
        if total not in graphs:
            graphs[total] = captured(
                lambda: encoder(inputs, total=total or None, plan=plan), inputs, model.device
            )
        return graphs[total]

    first = graph()

    def run():
        return graph()()

    run.graph, run.replay, run.graph_bytes = True, first.replay, first.graph_bytes
    return run


def choice(inputs: Mapping[str, Any]) -> tuple:
    """The key of ``Model.choices`` under which the attention of this shape is noted."""
    case = inputs["case"]
    return "by_rows", case["batch"], case["seq"], case["lengths"], case["mask"]


def _rows_are_faster(encoder: FusedEncoder, inputs: Mapping[str, Any]) -> bool:
    """Whether attention by the packed kernel, heads side by side, beats the padded one with its copy,
    measured on this shape."""
    import torch

    from fusescope.core.errors import Unsupported

    config, case = encoder.config, encoder.case
    weight = next(iter(encoder.weights.values()))
    qkv = torch.randn(
        case["batch"], case["seq"], 3 * config.inner, dtype=torch.float32, device=weight.device
    ).to(weight.dtype)
    offsets, took = encoder._offsets(torch, case["batch"], case["seq"]), {}
    for rows in (True, False):
        encoder.by_rows = rows
        attend = encoder._attend(inputs, None, offsets, False)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        try:
            with torch.no_grad():
                for _ in range(3):
                    attend(qkv)
                torch.cuda._sleep(
                    _QUEUING
                )  # the launches queue up behind it: the kernels' own time is compared
                start.record()
                for _ in range(_TRIALS):
                    attend(qkv)
                end.record()
        except Unsupported:
            continue
        end.synchronize()
        took[rows] = start.elapsed_time(end)
    return took.get(True, float("inf")) <= took.get(False, float("inf"))
