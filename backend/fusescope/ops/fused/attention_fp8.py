"""Attention on e4m3 operands with scales: what a case is, costs and competes with."""

from __future__ import annotations

import math

from fusescope import masks
from fusescope.core.schema import Parameter
from fusescope.masks import counting
from fusescope.ops.attention.describe import cases
from fusescope.ops.attention.describe import inputs as dense
from fusescope.ops.attention.fp8 import HEAD_DIMS, Quantised, attention_fp8, choose, quantise_fp8
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common.cases import UNIT_ROUNDOFF
from fusescope.ops.common.peers import late
from fusescope.ops.fused.attention import PEERS as _DENSE_PEERS

__all__ = ["attention_fp8"]

NAME = "attention_fp8"
TITLE = "Attention, fp8 (e4m3)"
SUMMARY = (
    "out = softmax(q kᵀ / √D, where the mask keeps) v, forward, per head: q, k, v and the weights in e4m3, "
    "with scales."
)
FAMILY = "attention_fp8"
_TAKEN = ("batch", "heads", "kv_heads", "seq", "seq_k", "mask")
PARAMETERS = (
    *(p for p in cases.PARAMETERS if p.name in _TAKEN),
    Parameter(
        "head_dim", "int", 128, "head size, 64 or 128", low=64, high=128, typical=HEAD_DIMS, sweep=True
    ),
    Parameter(
        "quantised",
        "choice",
        "before",
        "when q, k and v become e4m3: before the call, or inside it",
        choices=("before", "inside"),
    ),
)
DTYPES = ("float16", "bfloat16")
OPERANDS = "e4m3"
_EIGHTS = ("q8", "k8", "v8", "q_scale", "k_scale", "v_scale")
_UNIT = 2.0**6  # inputs are multiples of e4m3 numbers over this, which holds seven standard deviations

_ROUNDED = 2.0**-4 / math.sqrt(3) * math.sqrt((1 - 1 / 4) / (2 * math.log(2)))
"""Error of rounding to e4m3, root mean square relative to the number: even in +-1/16 over fractions from 1 to
2 that are even in their logarithm: 2.65 %."""
_TOGETHER = 1024  # keys whose products the tensor cores add up (cuda/attention_fp8/step.cuh)
_CUT = 0.14 * 2.0**-13
"""Of a sum of positive products that grows evenly, for each of them: an upper bound of what was measured.
Tensor cores keep some 13 bits below the exponent of what they have and cut off the rest of each product. In
cuBLAS's fast accumulation on an H100 sums of 512, 1024, 2048 and 4096 products of e4m3 numbers from 1 to 2
lose 0.48, 1.4, 3.2 and 6.9 %."""


def tolerance(values, dtype):
    """Of operands that e4m3 holds exactly: what rounding the weights and the tensor cores' sums cost.

    A weight is off by a share e of itself, independent of the others, 2.65 % in the root mean square, and
    so is the sum that it is divided by. So the result is off by sum(p e (v - result)), whose variance is
    at most 2.65 % squared of that of a result, sum(p v), which is exp(1) / n for n live keys of a typical row
    (see cases.tolerance): six standard deviations for an element, and where its row is not typical seven of
    its own (``deviation``). Tensor cores cut products off, in sums of 1024 keys at most. All results
    together: 2.65 %, a tenth more because n is finite.
    """
    fewest = _counts(values).fewest
    spread = min(1.0, math.sqrt(math.e / max(fewest, 1)))
    cut = _CUT * min(values["seq_k"], _TOGETHER)
    stored = UNIT_ROUNDOFF[dtype]
    return Tolerance(
        6 * _ROUNDED * spread,
        cut + stored,
        "weights rounded to e4m3, six standard deviations of 2.65 %; rows with at least "
        f"{fewest} keys, or seven of an element's own; sums of some 13 bits over up to 1024 keys",
        1.1 * _ROUNDED + cut + stored,
    )


_TYPICAL = {"mask": "full", "seq": 512, "seq_k": 512}


def validate(values):
    """The complete case, as of attention, with ``quantised``. ValueError as there, and for another head
    size."""
    if unknown := sorted(set(values) - {p.name for p in PARAMETERS}):
        raise ValueError(f"{NAME} has no parameter {unknown[0]!r}")
    parameter = PARAMETERS[-1]
    given = {"head_dim": 128} | {k: v for k, v in values.items() if k != parameter.name}
    case = cases.validate(given)
    if case["head_dim"] not in HEAD_DIMS:
        raise ValueError(f"head_dim must be 64 or 128, not {case['head_dim']}")
    del case["bias"]
    return case | {parameter.name: parameter.check(values.get(parameter.name, parameter.default))}


def inputs(values, dtype, device, seed, contiguous=True):
    """q, k, v and the plan as attention has them, of numbers that e4m3 holds: standard normal ones
    rounded to it. What is quantised before the call is there too (q8 … v_scale), else None."""
    import torch

    given = dense.inputs(values | {"bias": "none"}, dtype, device, seed, contiguous)
    for name in "qkv":
        t = given[name]
        t.copy_((t.float() * _UNIT).clamp(-448, 448).to(torch.float8_e4m3fn).float() / _UNIT)
    eights = (None,) * len(_EIGHTS)
    if values["quantised"] == "before":
        eights = quantise_fp8(given["q"], given["k"], given["v"]).tensors
    return given | dict(zip(_EIGHTS, eights))


def arguments(inputs):
    """As f(q, k, v, plan): 16-bit operands, since only this project's kernels know its tiles."""
    return (inputs["q"], inputs["k"], inputs["v"], inputs["plan"]), {}


def call(inputs, impl):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    if inputs["q8"] is None:
        return attention_fp8(q, k, v, inputs["plan"], impl=impl)
    eights = Quantised(*(inputs[name] for name in _EIGHTS), q.shape[2], k.shape[2], q.dtype)
    return attention_fp8(eights, mask=inputs["plan"], impl=impl)


def prepared(inputs, impl):
    return inputs["plan"].build_ms, inputs["plan"].bytes


def auto(inputs):
    return choose(inputs["q"].device)


def reference(inputs):
    """The specification in float64 on the 16-bit operands, which e4m3 holds."""
    return dense.reference(inputs)


def deviation(inputs):
    """The standard deviation of each element's error by rounding the weights, float64 (B, H, S_q, D): 2.65 %
    of sqrt(sum(p^2 (v - result)^2)). Of a row in which few keys weigh most it is several times that of a
    typical one."""
    import torch

    v = inputs["v"].double()
    out, squares_of_v = torch.empty(inputs["q"].shape, dtype=torch.float64, device=v.device), v.square()
    for rows, weights in dense.softmax(inputs):
        result, squares = dense.product(weights, v), weights.square()
        variance = dense.product(squares, squares_of_v) - 2 * result * dense.product(squares, v)
        variance += result.square() * squares.sum(-1, keepdim=True)
        out[:, :, rows] = _ROUNDED * variance.clamp_min_(0).sqrt_()
    return out


def cost(values, dtype):
    """As attention, on bytes of one each where operands are quantised before; products have twice the
    rate of 16-bit ones."""
    full = cases.cost(values | {"bias": "none"}, dtype)
    read = full.bytes_read / (2 if values["quantised"] == "before" else 1)
    return Cost(
        full.flop_effective,
        full.flop_executed,
        read,
        full.bytes_written,
        "matrix",
        full.notes,
        full.flop_dense,
        2.0,
    )


def _counts(values) -> counting.Counts:
    return counting.counts(masks.parse(values["mask"]), values["seq"], values["seq_k"])


TOLERANCE = {d: tolerance(_TYPICAL, d) for d in DTYPES}

PEERS = {
    name: Peer(
        peer.make, f"16-bit operands: {peer.idea}", peer.devices, peer.compiles, peer.skips, peer.package
    )
    for name, peer in _DENSE_PEERS.items()
    if name not in ("composed", "cudnn_blocks")
} | {
    "attention": Peer(
        late("attention.peers.own", "sixteen_bits"),
        "16-bit operands: this project's attention, kernel chosen by auto",
        skips=True,
    ),
}
