"""Is a model's result right: the reference in float64, the tokens that count, and the error allowed. Torch
inside functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fusescope.models.run import build
from fusescope.models.run.build import Model
from fusescope.models.run.decoder import quantised as quantisation
from fusescope.models.run.decoder.fp8_cache import Fp8Cache, RoundedCache
from fusescope.ops.base import Tolerance

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_ELEMENT = {"float32": 512, "float16": 32, "bfloat16": 32}
_NORM = {"float32": 48, "float16": 8, "bfloat16": 8}
_PIECE = (
    1 << 28
)  # scores of one layer, and elements of a cache, that the reference holds at once: 2 GB of float64


def tolerance(layers: int, dtype: str) -> Tolerance:
    """The error of one element of the last layer's normalised output, or of a logit, both of standard
    deviation 1.

    Roundings of every layer add up like a random walk: units of sqrt(layers). Measured on eager, SDPA and our
    attention, 1 to 24 layers of the five families, widths of 128: at most 41 u per sqrt(layer) in fp32 (sums
    over the width), 14 u in fp16 and 24 u in bf16; wider models and more elements reach further, hence about
    twice that.
    """
    units = _ELEMENT[dtype] * UNIT_ROUNDOFF[dtype] * math.sqrt(layers)
    return Tolerance(
        units,
        units / 4,
        f"{_ELEMENT[dtype]} roundings per layer to {dtype}, summed like a random walk over {layers} layers",
    )


def allowed_norm(layers: int, dtype: str) -> float:
    """The error of the whole result over its size, both as 2-norms: what a few wrong elements cannot hide in.

    Measured likewise: at most 8.4 u per sqrt(layer) in fp32, 2.2 u in fp16 and 3.9 u in bf16.
    """
    return _NORM[dtype] * UNIT_ROUNDOFF[dtype] * math.sqrt(layers)


def reference(
    model: Model,
    inputs: Mapping[str, Any],
    dtype=None,
    quantised: str | None = None,
    kept: Fp8Cache | None = None,
):
    """The model in float64 (or another torch dtype), attention as matmul and softmax, in pieces of the
    batch. quantised: with the weights that this quantisation leaves ("int8", "fp8"). kept: over a cache that
    is rounded as this one of a call on the inputs."""
    dtype = dtype or torch.float64
    change = quantisation.rounding(model.family, model.config, quantised) if quantised else None
    module = model.reference(dtype, change)
    with torch.no_grad():
        return torch.cat([build.call(module, piece) for piece in pieces(model, inputs, dtype, kept)])


def pieces(
    model: Model, inputs: Mapping[str, Any], dtype, kept: Fp8Cache | None = None
) -> Iterator[dict[str, Any]]:
    """The inputs in pieces of the batch that the reference takes at once."""
    case = inputs["case"]
    scores = max(1, model.config.heads) * (1 if case.get("phase") == "decode" else case["seq"]) * case["seq"]
    cached = inputs["cache"].size // case["batch"] if "cache" in inputs else 0
    step = max(1, _PIECE // max(scores, cached))
    for b in range(0, case["batch"], step):
        last = min(b + step, case["batch"])
        found = part(inputs, b, last, dtype)
        if kept is not None:
            allowed = tolerance(case["layers"], model.dtype)
            found["cache"] = RoundedCache.over(found["cache"], kept.part(b, last), allowed)
        yield found


def part(inputs: Mapping[str, Any], first: int, last: int, dtype) -> dict[str, Any]:
    """Sequences first … last−1 of inputs, floating tensors in another precision; a cache is copied."""
    found = dict(inputs)
    for name in (
        "input_ids",
        "decoder_input_ids",
        "forced",
        "position_ids",
        "pixel_values",
        "input_features",
        "lengths_tensor",
        "sizes",
        "keep",
        "additive",
    ):
        if (tensor := inputs.get(name)) is not None:
            tensor = tensor[first:last] if tensor.shape[0] > 1 else tensor
            found[name] = tensor.to(dtype) if tensor.dtype.is_floating_point else tensor
    found["lengths"] = inputs["lengths"][first:last]
    if "cache" in inputs:
        found["cache"] = inputs["cache"].part(first, last, dtype)
    return found


def valid(inputs: Mapping[str, Any], out):
    """Bool (B, S) of the tokens that are there, or None where all are: T5's decoder has no padding of its
    own, and every sequence decodes one token."""
    case = inputs["case"]
    if (
        "decoder_input_ids" in inputs
        or case.get("phase") in ("decode", "generate")
        or all(n == case["seq"] for n in inputs["lengths"])
    ):
        return None
    return torch.arange(out.shape[1], device=out.device)[None, :] < inputs["lengths_tensor"][:, None].to(
        out.device
    )
