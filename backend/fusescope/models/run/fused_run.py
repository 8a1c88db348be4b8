"""The mode "fused": our decoder (decoder/mode.py), or the fused encoder, on CUDA as one captured graph per
shape bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models.run.build import Model
from fusescope.models.run.capture import captured, plain
from fusescope.models.run.decoder import mode as decoder_mode
from fusescope.models.run.fused_encoder import FusedEncoder

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


def make(model: Model, inputs: Mapping[str, Any], quantised: str | None = None) -> Callable[[], Any]:
    """run() of our layers on these inputs; see modes.make. quantised: the weights of the mode, of a decoder
    alone."""
    if is_decoder(model):
        return decoder_mode.make(model, inputs, quantised)
    encoder = FusedEncoder(model, inputs["case"])
    plan, cuda = encoder.plan(inputs), model.device.startswith("cuda")
    if not cuda:
        encoder.by_rows = False
        return plain(lambda: encoder(inputs, plan=plan))
    if plan is None and not encoder.packs(inputs):
        encoder.by_rows = _rows_are_faster(encoder, inputs)
    model.choices[choice(inputs)] = encoder.by_rows
    graphs: dict[int | None, Callable[[], Any]] = {}

    def graph():
        """The graph of the bucket that the lengths fall into now; captured at its first use."""
        total = rows(encoder, inputs)
        if total not in graphs:
            graphs[total] = captured(lambda: encoder(inputs, total=total, plan=plan), model.device)
        return graphs[total]

    first = graph()

    def run():
        return graph()()

    run.graph, run.replay = True, first.replay
    run.result = first.result
    return run


def is_decoder(model: Model) -> bool:
    """Whether its layers of ours are those of run/decoder/."""
    return model.family.STRUCTURE == "decoder"


def operations(model: Model, inputs: Mapping[str, Any], quantised: str | None = None) -> Callable[..., Any]:
    """call(record=None, mark=None): the operations of a call launched one by one, to look inside
    (FusedEncoder, FusedDecoder); weights are packed again."""
    if is_decoder(model):
        return decoder_mode.FusedDecoder(model, inputs, quantised)
    encoder = FusedEncoder(model, inputs["case"])
    plan = encoder.plan(inputs)
    encoder.by_rows = model.choices.get(choice(inputs), model.device.startswith("cuda"))
    return lambda record=None, mark=None: encoder(inputs, record, mark, plan=plan)


def rows(encoder: FusedEncoder, inputs: Mapping[str, Any]) -> int | None:
    """Rows of the bucket that the tokens are packed into; None where they are not packed."""
    case = inputs["case"]
    return bucket(sum(inputs["lengths"]), case["batch"], case["seq"]) if encoder.packs(inputs) else None


def choice(inputs: Mapping[str, Any]) -> tuple:
    """The key of ``Model.choices`` under which the attention of this shape is noted."""
    case = inputs["case"]
    return "by_rows", case["batch"], case["seq"], case["lengths"], case["mask"]


def _rows_are_faster(encoder: FusedEncoder, inputs: Mapping[str, Any]) -> bool:
    """Whether attention by the packed kernel, heads side by side, beats the padded one with its copy,
    measured on this shape."""
    config, case = encoder.config, encoder.case
    weight = next(iter(encoder.weights.values()))
    shape, took = (case["batch"], case["seq"], 3 * config.inner), {}
    qkv = torch.randn(shape, dtype=torch.float32, device=weight.device).to(weight.dtype)
    for by_rows in (True, False):
        encoder.by_rows = by_rows
        attend = encoder.attention(inputs)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        try:
            with torch.no_grad():
                for _ in range(3):
                    attend(qkv)
                torch.cuda._sleep(_QUEUING)  # the launches queue up behind it: kernel times are compared
                start.record()
                for _ in range(_TRIALS):
                    attend(qkv)
                end.record()
        except Unsupported:
            continue
        end.synchronize()
        took[by_rows] = start.elapsed_time(end)
    return took.get(True, float("inf")) <= took.get(False, float("inf"))
