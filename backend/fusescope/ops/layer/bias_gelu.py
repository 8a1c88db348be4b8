"""GELU of x + bias, in both of its forms, bound by memory."""

from __future__ import annotations

from fusescope.core.schema import Parameter
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common import rows
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, complete_rows
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "bias_gelu"
TITLE = "Bias + GELU"
SUMMARY = (
    "out = v Phi(v) of v = x + bias (erf), or v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3))), over "
    "rows of the last dimension."
)
FAMILY = "bias_gelu"
FORMS = ("none", "tanh")
"""``approximate`` as torch.nn.functional.gelu has it: "none" is the form with erf."""
PARAMETERS = (
    *rows.parameters(
        typical_rows=(128, 512, 4096, 8192, 32768), typical_cols=(1024, 2048, 3072, 4096, 16384), cols=3072
    ),
    Parameter(
        "approximate", "choice", "none", "none: with erf (BERT, ViT); tanh: with tanh (GPT-2)", choices=FORMS
    ),
)
DTYPES = ("float32", "float16", "bfloat16")


def tolerance(values, dtype):
    """fp32 arithmetic, then one rounding to the storage type; in 16 bits x + bias may be rounded before it.

    In fp32, x/2 (1 + erf) errs by u |x| from the rounding of the sum in brackets, and the exponential's
    argument a^2 / 2 carries u a^2 / 2 into a result of exp(-a^2 / 2): both stay below 4 u; 16 u are allowed,
    and relative to the result 16 u. Rounding v to 16 bits moves gelu(v) by up to w |v gelu'(v)|, w the
    rounding unit: at most 0.2 w for v < 0 and 1.3 w gelu(v) for v > 0.
    """
    u, w = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    if dtype == "float32":
        return Tolerance(16 * u, 16 * u, "fp32 arithmetic, one rounding to float32")
    return Tolerance(
        16 * u + 0.2 * w, 2.35 * w, f"fp32 arithmetic; x + bias and the result rounded to {dtype}"
    )


TOLERANCE = {d: tolerance({}, d) for d in DTYPES}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    x = random_tensor((values["rows"], values["cols"]), dtype, device, g, contiguous)
    return {
        "x": x,
        "bias": random_tensor((values["cols"],), dtype, device, g, contiguous),
        "approximate": values["approximate"],
    }


def arguments(inputs):
    return (inputs["x"], inputs["bias"], inputs["approximate"]), {}


def call(inputs, impl):
    return bias_gelu(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    return _separate(inputs["x"].double(), inputs["bias"].double(), inputs["approximate"])


def cost(values, dtype):
    n = values["rows"] * values["cols"]
    # The bias; x/2 * (1 + erf(x/sqrt 2)): three products, a sum and erf; with tanh five products, three sums
    # and tanh.
    flop = (6.0 if values["approximate"] == "none" else 10.0) * n
    return Cost(flop, flop, (n + values["cols"]) * BYTES[dtype], n * BYTES[dtype])


def _separate(x, bias, approximate):
    import torch

    return torch.nn.functional.gelu(x + bias, approximate=approximate)


PEERS = torch_peers(_separate, arguments, "an addition and torch.nn.functional.gelu")


def bias_gelu(x, bias, approximate="none", *, impl="auto"):
    """GELU of x + bias, elementwise, in x's dtype with fp32 arithmetic.

    x: (..., W), any strides; bias: (W,), or None. approximate: "none" for v Phi(v), "tanh" for its
    approximation. float32, float16 or bfloat16, on the CPU or a CUDA device. impl: a kernel of
    cuda/bias_gelu, or "auto" for the last of the ladder. Raises TypeError and ValueError for operands that do
    not fit.
    """
    from fusescope import kernels

    rows.check(NAME, DTYPES, x, {}, {"bias": bias})
    if approximate not in FORMS:
        raise ValueError(f"approximate must be {' or '.join(FORMS)}, not {approximate!r}")
    return kernels.call(NAME, x, bias, approximate == "tanh", impl=impl)


def _fake(x, bias, tanh, impl):
    return x.new_empty(x.shape)


register_fakes({NAME: _fake})
