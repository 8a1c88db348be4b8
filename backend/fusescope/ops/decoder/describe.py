"""Cases of decoder_layers: parameters, cost and the error that its result may have; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.schema import Parameter
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, complete_heads

NAME = "decoder_layers"
KINDS = {
    "gpt2": "LayerNorm, biases and GELU (tanh), no rotation",
    "llama": "RMSNorm, SwiGLU and rotary positions, no biases",
    "qwen3": "as llama, with queries and keys normed",
}
PARAMETERS = (
    Parameter(
        "layer",
        "choice",
        "gpt2",
        "kind of the layers: " + "; ".join(f"{kind}: {what}" for kind, what in KINDS.items()),
        choices=tuple(KINDS),
    ),
    Parameter(
        "batch", "int", 1, "sequences, one new token each", low=1, high=1 << 12, typical=(1, 4, 8), sweep=True
    ),
    Parameter("layers", "int", 12, "layers", low=1, high=1 << 9, typical=(12, 24, 32)),
    Parameter("width", "int", 768, "width of the model", low=64, high=1 << 16, typical=(768, 1024, 4096)),
    Parameter("heads", "int", 12, "query heads", low=1, high=1 << 10, typical=(12, 16, 32)),
    Parameter(
        "kv_heads",
        "int",
        None,
        "heads of k and v, a divisor of heads; as many where left out",
        low=1,
        high=1 << 10,
        typical=(2, 4),
    ),
    Parameter("head_dim", "int", 64, "head size, even", low=16, high=1 << 9, typical=(64, 128)),
    Parameter(
        "ffn",
        "int",
        None,
        "inner width of the feed-forward network; four times the width where left out",
        low=64,
        high=1 << 18,
        typical=(3072, 14336),
    ),
    Parameter(
        "cached",
        "int",
        512,
        "keys of a sequence that are in the caches before the call",
        low=0,
        high=1 << 20,
        typical=(0, 128, 512, 4096),
        sweep=True,
    ),
    Parameter(
        "weights",
        "choice",
        "as x",
        "what matrices are kept in: as x, its dtype, or int8 or fp8 (e4m3) with a scale per output",
        choices=("as x", "int8", "fp8"),
        omitted=True,
    ),
)
DTYPES = ("float32", "float16", "bfloat16")
_ROOM = 64  # places of a cache are a multiple of this


def validate(values: Mapping[str, Any]) -> dict[str, Any]:
    """The complete case; weights only where they are not the default."""
    values = complete_heads(NAME, PARAMETERS, values)
    values["ffn"] = values["ffn"] or 4 * values["width"]
    if values["head_dim"] % 2:
        raise ValueError(f"head_dim is even, not {values['head_dim']}")
    return values


def room(values: Mapping[str, Any]) -> int:
    """Places of a sequence in the caches: the keys that are there, the new one, and some that are not."""
    return (values["cached"] // _ROOM + 1) * _ROOM


def shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of a layer's weights, those that its kind has; in the order of DecoderLayer."""
    width, dim, ffn = values["width"], values["head_dim"], values["ffn"]
    inner, packed = values["heads"] * dim, (values["heads"] + 2 * values["kv_heads"]) * dim
    plain, normed = values["layer"] == "gpt2", values["layer"] == "qwen3"
    first = ffn if plain else 2 * ffn
    found = {
        "norm1": (width,),
        "norm1_bias": (width,) if plain else None,
        "qkv": (packed, width),
        "qkv_bias": (packed,) if plain else None,
        "q_norm": (dim,) if normed else None,
        "k_norm": (dim,) if normed else None,
        "output": (width, inner),
        "output_bias": (width,) if plain else None,
        "norm2": (width,),
        "norm2_bias": (width,) if plain else None,
        "first": (first, width),
        "first_bias": (first,) if plain else None,
        "second": (width, ffn),
        "second_bias": (width,) if plain else None,
    }
    return {name: shape for name, shape in found.items() if shape}


def activation(values: Mapping[str, Any]) -> str:
    return "gelu_tanh" if values["layer"] == "gpt2" else "swiglu"


def cost(values: Mapping[str, Any], dtype: str) -> Cost:
    """Weights, their scales, and the keys and values that are there are read once, those of the new token
    written."""
    layers, batch, dim, cached = (values[name] for name in ("layers", "batch", "head_dim", "cached"))
    weights = matrices = 0  # bytes, and elements of matrices
    for outputs, *terms in shapes(values).values():
        if terms:
            matrices += outputs * terms[0]
            weights += outputs * (terms[0] + 4 if "weights" in values else terms[0] * BYTES[dtype])
        else:
            weights += outputs * BYTES[dtype]
    new = 2 * batch * values["kv_heads"] * dim
    token = batch * values["width"] * BYTES[dtype]
    angles = 0 if values["layer"] == "gpt2" else 4 * batch * dim
    read = layers * (weights + cached * new * BYTES[dtype]) + token + angles + 8 * batch
    flop = layers * batch * (2.0 * matrices + 4.0 * values["heads"] * dim * (cached + 1))
    return Cost(flop, flop, read, layers * new * BYTES[dtype] + token, unit="matrix")


def tolerance(values: Mapping[str, Any], dtype: str) -> Tolerance:
    """Seven standard deviations of the error, followed through the layers; x, its norms, q, k, v and what
    second takes have size one, and branches are 1 / sqrt(2 L) of that (inputs()).

    A rounding to the storage type errs by 0.42 v of the value in the root mean square (uniform within v of a
    mantissa from 1 to 2, all of these equally likely on a scale of logarithms), a sum over k terms in fp32 by
    sqrt(k) u / sqrt(3), the approximated exp, tanh and erf by 16 u. Of the 2 L branches each norms x, which
    brings x's error and two roundings of its own (torch's operators round before and after the weight). It
    does not enlarge errors: attention's derivative by the new value is its weight, by the score at most a
    half, the mean square of GELU's slope 0.5, of SwiGLU's two 0.8. It adds six roundings (product, bias,
    weights, context; product, bias, gate, up and their product) and four sums. Its sum with x is two more
    roundings (product with bias, sum). The branches' errors are independent, so squares add up. A key in a
    cache has, besides x's error and the norm's two, eight (product, bias, norm, cosine, sine, products, sum).
    What grows with an element is relative: the roundings of the 2 L sums.

    Weights in 8 bits change nothing: int8's 7 bits and e4m3's 4 are exact in every dtype, and the scale
    multiplies a sum in fp32, a rounding by u. What dequantises beforehand rounds each weight: two roundings
    more of a branch, one of a key, within a tenth of the deviation.
    """
    u, v, steps = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype], 2 * values["layers"]
    terms = max(values["width"], values["heads"] * values["head_dim"], values["ffn"], values["cached"] + 1)
    rounding, summing = (0.42 * v) ** 2, (terms * u * u / 3) + (16 * u) ** 2
    x = cache = 0.0
    for _ in range(steps):
        normed = x + 2 * rounding + summing
        cache = normed + 8 * rounding + 4 * summing  # the last layer's is the largest
        x += (normed + 6 * rounding + 4 * summing) / steps + 2 * rounding
    deviation = max(x, cache) ** 0.5
    reason = (
        f"seven standard deviations of the roundings to {dtype} and of fp32 sums over up to {terms} terms "
        f"in {values['layers']} layers"
    )
    relative = min(0.04, 7 * (2 * steps * rounding) ** 0.5)
    return Tolerance(7 * deviation, relative, reason, norm=2 * deviation)


TOLERANCE = {dtype: tolerance(validate({}), dtype) for dtype in DTYPES}
