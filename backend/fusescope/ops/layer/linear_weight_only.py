"""A linear layer with weights of 8 bits, for few rows bound by reading them."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter, complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors
from fusescope.ops.common.matmul import EPILOGUE, LARGEST, accumulation_tolerance, check_linear
from fusescope.ops.common.peers import COMPILES, compiled, plain
from fusescope.ops.common.tensors import awkward, generator_for, random_tensor
from fusescope.ops.layer.linear import linear

NAME = "linear_weight_only"
TITLE = "Linear layer, 8-bit weights"
SUMMARY = (
    "out = activation(scales · (x weightᵀ) + bias) + residual: a weight of int8 or e4m3 with one scale per "
    "output, accumulated in fp32."
)
FAMILY = "linear_weight_only"
FORMATS = ("int8", "fp8")
PARAMETERS = (
    size("rows", 1, "rows of x (tokens)", 1 << 16, (1, 2, 4, 8, 16)),
    size("inputs", 4096, "elements of a row of x", LARGEST, (768, 3072, 4096, 14336)),
    size("outputs", 4096, "elements of a row of the result", LARGEST, (768, 2304, 4096, 6144, 28672)),
    Parameter("weight", "choice", "int8", "what the weight is kept in: int8 or fp8 (e4m3)", choices=FORMATS),
    *EPILOGUE,
)
DTYPES = ("float32", "float16", "bfloat16")
_KINDS = {"int8": ("int8", 127.0), "fp8": ("float8_e4m3fn", 448.0)}
FEW_ROWS = 16
"""Rows up to which a product reads its 8-bit weight once."""


def tolerance(values, dtype):
    """Of a product z over k terms of standard normal x and weights of variance 1 / k, with a bias; u = 2^-24,
    w the rounding unit of dtype.

    The sums of accumulation_tolerance, smaller by sqrt(k) as the weights are. What dequantises beforehand
    rounds each weight to dtype (six standard deviations of k errors of up to w each: 6 w / sqrt(3), 3.5 w)
    or its scale (w of z), and the result, whose sum without the bias (up to 6) may be rounded before. GELU's
    slope is at most 1.13; relative to its value 1.3 for z > 0 and 0.2 / |gelu| for z < 0 (see bias_gelu).
    z with a residual carries 6 w.
    """
    u, w = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    sums = accumulation_tolerance(values["inputs"], dtype)
    absolute, relative = sums.absolute / values["inputs"] ** 0.5, sums.relative + 1.01 * w
    absolute += 9.5 * w
    reason = f"fp32 accumulation over k = {values['inputs']} terms; weights and result rounded to {dtype}"
    if values["activation"] != "none":
        absolute, relative = 1.13 * absolute + 0.2 * w + 16 * u, 1.3 * relative + 1.01 * w + 16 * u
        reason += ", GELU of that rounded again"
    if values["residual"] == "yes":
        absolute += 6 * w
        reason += ", the sum with the residual rounded too"
    return Tolerance(absolute, relative, reason)


_TYPICAL = {"inputs": 4096, "activation": "none", "residual": "no"}
TOLERANCE = {d: tolerance(_TYPICAL, d) for d in DTYPES}


def validate(values):
    return complete(NAME, PARAMETERS, values, text=True)


def quantised(exact, kind: str):
    """(weight (N, K), scales (N,)) of float32 (N, K), symmetric: the largest of a row becomes the largest of
    the format. kind: "int8" (−127 to 127, rounded to even) or "fp8" (e4m3, largest 448)."""
    import torch

    dtype, most = _KINDS[kind]
    largest = exact.abs().amax(1)
    scales = torch.where(largest > 0, largest / most, torch.ones_like(largest))
    weight = exact / scales[:, None]
    if kind == "int8":
        weight = weight.round()
    return weight.clamp(-most, most).to(getattr(torch, dtype)), scales


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    rows, terms, outputs = values["rows"], values["inputs"], values["outputs"]
    exact = random_tensor((outputs, terms), "float32", device, g) / terms**0.5
    weight, scales = quantised(exact, values["weight"])
    return {
        "x": random_tensor((rows, terms), dtype, device, g, contiguous),
        "weight": weight if contiguous else awkward(weight),
        "scales": scales if contiguous else awkward(scales),
        "bias": random_tensor((outputs,), dtype, device, g, contiguous),
        "activation": None if values["activation"] == "none" else values["activation"],
        "residual": random_tensor((rows, outputs), dtype, device, g, contiguous)
        if values["residual"] == "yes"
        else None,
    }


def arguments(inputs):
    names = ("x", "weight", "scales", "bias", "activation", "residual")
    return tuple(inputs[name] for name in names), {}


def call(inputs, impl):
    return linear_weight_only(*arguments(inputs)[0], impl=impl)


def auto(inputs):
    return choose(inputs["x"])


def choose(x) -> str:
    """The kernel that "auto" means: the last of the ladder, on a GPU v2_dot for float32."""
    from fusescope import kernels

    if x.device.type == "cuda" and x.element_size() == 4:
        return "v2_dot"
    device = x.device.type if x.device.index is None else f"{x.device.type}:{x.device.index}"
    return kernels.choose(FAMILY, device)


def reference(inputs):
    import torch

    x, weight, scales, bias, activation, residual = arguments(inputs)[0]
    exact = dequantised(weight, scales, torch.float64)
    added = None if residual is None else residual.double()
    return _finished(x.double() @ exact.t(), bias.double(), activation, added)


def cost(values, dtype):
    m, k, n = values["rows"], values["inputs"], values["outputs"]
    added = m * n if values["residual"] == "yes" else 0
    flop = 2.0 * m * n * k
    read = k * n + 4 * n + BYTES[dtype] * (m * k + n + added)
    return Cost(flop, flop, read, BYTES[dtype] * m * n, unit="matrix")


def dequantised(weight, scales, dtype):
    """(N, K) in a floating dtype, rounded once."""
    import torch

    wide = torch.promote_types(dtype, torch.float32)
    return (weight.to(wide) * scales[:, None].to(wide)).to(dtype)


def _finished(z, bias, activation, residual):
    import torch

    z = z if bias is None else z + bias
    if activation is not None:
        z = torch.nn.functional.gelu(z, approximate="tanh" if activation == "gelu_tanh" else "none")
    return z if residual is None else z + residual


def _separate(x, weight, scales, bias, activation, residual):
    import torch

    wide = dequantised(weight, scales, x.dtype)
    return _finished(torch.nn.functional.linear(x, wide), bias, activation, residual)


def _beforehand(inputs):
    import torch

    x, weight, scales, bias, activation, residual = arguments(inputs)[0]
    wide = dequantised(weight, scales, x.dtype)
    return plain(lambda: _finished(torch.nn.functional.linear(x, wide, bias), None, activation, residual))


def _int8pack(inputs):
    import torch

    x, weight, scales, bias, activation, residual = arguments(inputs)[0]
    if not hasattr(torch, "_weight_int8pack_mm"):
        raise Unsupported("this torch has no _weight_int8pack_mm")
    if weight.dtype != torch.int8:
        raise Unsupported("_weight_int8pack_mm takes int8; choose weight=int8")
    x, weight, own = x.contiguous(), weight.contiguous(), scales.to(x.dtype)

    def run():
        return _finished(torch._weight_int8pack_mm(x, weight, own), bias, activation, residual)

    try:
        run()
    except (RuntimeError, NotImplementedError) as error:
        said = str(error).splitlines()[0]
        raise Unsupported(f"_weight_int8pack_mm does not take this case: {said}") from error
    return run


PEERS = {
    "eager": Peer(
        lambda i: plain(_separate, *arguments(i)[0]),
        "the weight dequantised in each call, then torch.nn.functional.linear, gelu and an addition",
    ),
    "compile": Peer(
        lambda i: compiled(_separate, *arguments(i)[0]), "torch.compile of the same", compiles=COMPILES
    ),
    "dequantised": Peer(
        _beforehand, "torch.nn.functional.linear with the weight dequantised beforehand: 16 bits are read"
    ),
    "int8pack": Peer(_int8pack, "torch._weight_int8pack_mm, scales in x's dtype; int8 only"),
}


def linear_weight_only(
    x, weight, scales, bias=None, activation=None, residual=None, *, settled=False, impl="auto"
):
    """activation(scales · (x weightᵀ) + bias) + residual in x's dtype, products summed in fp32.

    x: (..., K) float32, float16 or bfloat16; weight: (N, K) int8 or float8_e4m3fn, rows side by side at any
    distance (other strides are copied in each call); scales: (N,) float32; bias: (N,) or None; activation:
    None, "gelu" (with erf) or "gelu_tanh"; residual: (..., N) or None. On the CPU or a CUDA device.

    settled: weight and scales are not written by the last kernel before this call on its stream: on Hopper
    they may then be read while that kernel still runs. Meant for up to 16 rows; more are right, and read the
    weight again for each 16. impl: a kernel of cuda/linear_weight_only, or "auto". Raises TypeError and
    ValueError for operands that do not fit.
    """
    import torch

    from fusescope import kernels

    given = {"x": x} | {k: t for k, t in (("bias", bias), ("residual", residual)) if t is not None}
    check_tensors(NAME, DTYPES, **given)
    if weight.dtype not in (torch.int8, torch.float8_e4m3fn):
        raise TypeError(f"{NAME} takes a weight of int8 or float8_e4m3fn, not {weight.dtype}")
    code = check_linear(NAME, x, weight, bias, activation, residual)
    if scales.dtype != torch.float32 or scales.shape != weight.shape[:1]:
        raise ValueError(
            f"{NAME} takes float32 scales of shape ({weight.shape[0]},), one for each output; not "
            f"{scales.dtype} {tuple(scales.shape)}"
        )
    if weight.device != x.device or scales.device != x.device:
        raise ValueError(
            f"{NAME} takes tensors of one device; x is on {x.device}, weight on {weight.device}, scales on "
            f"{scales.device}"
        )
    operands = (x, weight, scales, bias, residual, code, bool(settled))
    return kernels.call(NAME, *operands, impl=choose(x) if impl == "auto" else impl)


def product(x, weight, scales, bias=None, activation=None, residual=None):
    """The same of a settled weight, by the quicker of two ways: more than FEW_ROWS rows of x multiply with
    the weight dequantised before."""
    if x.numel() <= FEW_ROWS * x.shape[-1]:
        return linear_weight_only(x, weight, scales, bias, activation, residual, settled=True)
    wide = dequantised(weight, scales, x.dtype)  # not settled: it was just written
    return linear(x, wide, bias, activation, residual)


def _fake(x, weight, scales, bias, residual, activation, settled, impl):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


register_fakes({NAME: _fake})
