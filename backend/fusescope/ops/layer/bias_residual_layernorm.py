"""LayerNorm of x + bias + residual, bound by memory: what follows the output products of a Transformer
layer."""

from __future__ import annotations

from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common import rows
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, complete_rows
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor, scale_tensor

NAME = "bias_residual_layernorm"
TITLE = "Bias + residual + LayerNorm"
SUMMARY = (
    "out = (s - mean) / sqrt(var + eps) * weight + shift of s = x + bias + residual, over rows of "
    "the last dimension."
)
FAMILY = "bias_residual_layernorm"
PARAMETERS = rows.parameters(
    typical_rows=(128, 512, 4096, 8192, 32768), typical_cols=(256, 512, 768, 1024, 4096)
)
DTYPES = ("float32", "float16", "bfloat16")
EPS = 1e-12


def tolerance(values, dtype):
    """fp32 arithmetic on normal inputs, then one rounding to the storage type; in 16 bits both sums may be
    rounded before it.

    As for layernorm: 160 u of fp32, and in rows of fewer than 8 elements, which may by chance be nearly
    constant, more. There a sum s errs by up to 12 u (three summands of up to 4), which the norm multiplies by
    1 / std; 1e-3 is the least std that 1e6 rows of two elements are expected to have, hence 12 u * 1e3.
    Rounding x + bias (up to 6) and s (up to 8) to 16 bits, as torch's separate operators do, costs up to 14
    v, v the rounding unit, which the norm divides by sqrt(3) and the weight (1.5) multiplies: 12 v; 40 times
    that in short rows, which covers a std of 1/25 (the separate operators really are that wrong, and more,
    where a row of two elements is nearly constant).
    """
    u, v = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    short = values["cols"] < 8
    absolute = 160 * u + (12e3 * u if short else 0.0)
    if dtype == "float32":
        return Tolerance(
            absolute, 4 * u, f"fp32 arithmetic over rows of {values['cols']}, then one rounding to float32"
        )
    absolute += 12 * v * (40 if short else 1)
    return Tolerance(
        absolute,
        1.01 * v,
        f"fp32 arithmetic over rows of {values['cols']}; the two sums and the result rounded to {dtype}",
    )


TOLERANCE = {d: tolerance({"cols": 768}, d) for d in DTYPES}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    cols, shape = values["cols"], (values["rows"], values["cols"])
    found = {name: random_tensor(shape, dtype, device, g, contiguous) for name in ("x", "residual")}
    found["bias"] = random_tensor((cols,), dtype, device, g, contiguous)
    return found | {
        "weight": scale_tensor((cols,), dtype, device, g, contiguous),
        "shift": random_tensor((cols,), dtype, device, g, contiguous),
    }


def arguments(inputs):
    return (inputs["x"], inputs["bias"], inputs["residual"], inputs["weight"], inputs["shift"], EPS), {}


def call(inputs, impl):
    return bias_residual_layernorm(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    *tensors, eps = arguments(inputs)[0]
    return _separate(*(t.double() for t in tensors), eps)


def cost(values, dtype):
    n, cols = values["rows"] * values["cols"], values["cols"]
    flop = 10.0 * n  # two sums; mean 1, difference, square and sum 3, difference and three products or sums 4
    return Cost(flop, flop, (2 * n + 3 * cols) * BYTES[dtype], n * BYTES[dtype])


def _separate(x, bias, residual, weight, shift, eps):
    import torch

    return torch.nn.functional.layer_norm(x + bias + residual, x.shape[-1:], weight, shift, eps)


PEERS = torch_peers(_separate, arguments, "two additions and torch.nn.functional.layer_norm")


def bias_residual_layernorm(x, bias, residual, weight, shift, eps=EPS, *, impl="auto"):
    """LayerNorm of x + bias + residual over the last dimension, in x's dtype; the sum, mean and variance are
    kept in fp32.

    x, residual: (..., W), any strides; bias, weight, shift: (W,). bias and residual may be None. float32,
    float16 or bfloat16, on the CPU or a CUDA device. impl: a kernel of cuda/bias_residual_layernorm, or
    "auto" for the last of the ladder. Raises TypeError and ValueError for operands that do not fit.
    """
    from fusescope import kernels

    rows.check(NAME, DTYPES, x, {"residual": residual}, {"bias": bias, "weight": weight, "shift": shift})
    if weight is None or shift is None:
        raise TypeError(f"{NAME} takes weight and shift as tensors; ones and zeros where the norm has none")
    if not eps >= 0:
        raise ValueError(f"eps is at least 0, not {eps}")
    return kernels.call(NAME, x, bias, residual, weight, shift, float(eps), impl=impl)


def _fake(x, bias, residual, weight, shift, eps, impl):
    return x.new_empty(x.shape)


register_fakes({NAME: _fake})
