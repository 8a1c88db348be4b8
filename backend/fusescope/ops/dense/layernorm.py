"""LayerNorm over the last dimension, bound by memory."""

from __future__ import annotations

from fusescope.core.schema import size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors, complete_rows
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "layernorm"
TITLE = "LayerNorm"
SUMMARY = "out = (x - mean) / sqrt(var + eps) * weight + bias, over rows of the last dimension."
FAMILY = "layernorm"
PARAMETERS = (
    size("rows", 4096, "rows", 1 << 27, (1, 64, 1024, 4096, 16384, 65536)),
    size("cols", 768, "elements per row", 1 << 27, (256, 768, 1024, 4096, 8192, 16384)),
)
DTYPES = ("float32", "float16", "bfloat16")
EPS = 1e-5


def tolerance(values, dtype):
    """fp32 arithmetic on normal inputs, then one rounding to the storage type.

    Normalised values times weights reach 25 and carry a few u = 2^-24 of it: 160 u. Rows of fewer than 8
    elements may by chance be nearly constant; then an error of u |x| in the mean grows by up to 1 / sqrt(eps)
    = 316: 4 u * 316 * |weight| (4) on top.
    """
    u = UNIT_ROUNDOFF["float32"]
    absolute = 160 * u + (4 * 316 * 4 * u if values["cols"] < 8 else 0.0)
    relative = 4 * u if dtype == "float32" else 1.01 * UNIT_ROUNDOFF[dtype]
    return Tolerance(
        absolute, relative, f"fp32 arithmetic over rows of {values['cols']}, then one rounding to {dtype}"
    )


TOLERANCE = {d: tolerance({"cols": 768}, d) for d in DTYPES}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    cols = values["cols"]
    x = random_tensor((values["rows"], cols), dtype, device, g, contiguous)
    return {"x": x} | {
        name: random_tensor((cols,), dtype, device, g, contiguous) for name in ("weight", "bias")
    }


def arguments(inputs):
    return (inputs["x"], inputs["weight"], inputs["bias"], EPS), {}


def call(inputs, impl):
    return layernorm(inputs["x"], inputs["weight"], inputs["bias"], EPS, impl=impl)


def reference(inputs):
    x, weight, bias = (inputs[name].double() for name in ("x", "weight", "bias"))
    return _layer_norm(x, weight, bias, EPS)


def cost(values, dtype):
    n = values["rows"] * values["cols"]
    flop = 8.0 * n  # mean 1, difference, square and sum 3, difference and three products or sums 4
    return Cost(flop, flop, (n + 2 * values["cols"]) * BYTES[dtype], n * BYTES[dtype])


def _layer_norm(x, weight, bias, eps):
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


PEERS = torch_peers(_layer_norm, arguments, "torch.nn.functional.layer_norm")


def layernorm(x, weight=None, bias=None, eps=EPS, *, impl="auto"):
    """LayerNorm of x over its last dimension, in its dtype, mean and variance in fp32; any shape and strides.

    weight, bias: (cols,) of x's dtype, or None for ones and zeros. float32, float16 or bfloat16, on the CPU
    or a CUDA device. impl: a kernel of cuda/layernorm, or "auto" for the last of the ladder. Raises TypeError
    and ValueError for operands that do not fit.
    """
    from fusescope import kernels

    given = {
        name: t for name, t in (("x", x), ("weight", weight), ("bias", bias)) if name == "x" or t is not None
    }
    check_tensors(NAME, DTYPES, **given)
    if x.dim() < 1:
        raise ValueError("layernorm takes a tensor of at least one dimension, not a single number")
    for name, t in list(given.items())[1:]:
        if t.shape != x.shape[-1:]:
            raise ValueError(
                f"layernorm takes {name} of shape ({x.shape[-1]},), one element for each of a row; "
                f"not {tuple(t.shape)}"
            )
    if not eps >= 0:
        raise ValueError(f"eps is at least 0, not {eps}")
    return kernels.call(NAME, x, weight, bias, float(eps), impl=impl)


def _fake(x, weight, bias, eps, impl):
    return x.new_empty(x.shape)


register_fakes({"layernorm": _fake})
