"""Softmax over the last dimension, bound by memory."""

from __future__ import annotations

from backend.kernels import register_fakes
from backend.ops._cases import BYTES, UNIT_ROUNDOFF, check_tensors, complete_rows
from backend.ops._peers import COMPILES, compiled
from backend.ops._tensors import generator_for, random_tensor
from backend.ops.base import Cost, Parameter, Peer, Tolerance

NAME = "softmax"
TITLE = "Softmax"
SUMMARY = "out[r, j] = exp(x[r, j] - max x[r]) / sum exp(x[r] - max x[r]), over rows of the last dimension."
FAMILY = "softmax"
PARAMETERS = (
    Parameter("rows", "int", 4096, "rows", low=1, high=1 << 27, typical=(1, 64, 1024, 4096, 16384, 65536), sweep=True),
    Parameter(
        "cols", "int", 1024, "elements a row", low=1, high=1 << 27, typical=(128, 512, 1024, 4096, 16384, 65536), sweep=True
    ),
)
DTYPES = ("float32", "float16", "bfloat16")
_WHY = (
    "x - max, |x - max| < 16 for normal inputs: 16 u; exp: up to 2 + 1.2 |x| ulp (CUDA's __expf), 42 u; sum and quotient: 6 u; "
    "u = 2^-24, 64 u together"
)
TOLERANCE = {
    "float32": Tolerance(1e-12, 64 * 2.0**-24, _WHY),
    "float16": Tolerance(2.0**-25 * 1.01, 1.01 * UNIT_ROUNDOFF["float16"], _WHY + "; one rounding, subnormal below 2^-14"),
    "bfloat16": Tolerance(1e-12, 1.01 * UNIT_ROUNDOFF["bfloat16"], _WHY + "; one rounding"),
}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    return {"x": random_tensor((values["rows"], values["cols"]), dtype, device, generator_for(device, seed), contiguous)}


def arguments(inputs):
    return (inputs["x"],), {}


def call(inputs, impl):
    return softmax(inputs["x"], impl=impl)


def reference(inputs):
    import torch

    return torch.softmax(inputs["x"].double(), -1)


def cost(values, dtype):
    n = values["rows"] * values["cols"]
    return Cost(5.0 * n, 5.0 * n, n * BYTES[dtype], n * BYTES[dtype], notes={"flop an element": "max, subtract, exp, add, scale"})


def _softmax(x):
    import torch

    return torch.softmax(x, -1)


PEERS = {
    "eager": Peer(lambda i: lambda: _softmax(i["x"]), "torch.softmax"),
    "compile": Peer(lambda i: compiled(_softmax, i["x"]), "torch.compile of torch.softmax", compiles=COMPILES),
}


def softmax(x, *, impl="auto"):
    """Softmax of x over its last dimension, in its dtype, summed in fp32; any shape of at least one dimension, any strides.

    float32, float16 or bfloat16, on the CPU or a CUDA device. Rows of nothing but -inf, and rows with +inf or NaN, become NaN, as
    in torch. impl: a kernel of cuda/softmax, or "auto" for the last of the ladder. Raises TypeError and ValueError for what is
    not a tensor it takes.
    """
    from backend import kernels

    check_tensors(NAME, DTYPES, x=x)
    if x.dim() < 1:
        raise ValueError("softmax takes a tensor of at least one dimension, not a single number")
    return kernels.call(NAME, x, impl=impl)


def _fake(x, impl):
    return x.new_empty(x.shape)


register_fakes({"softmax": _fake})
