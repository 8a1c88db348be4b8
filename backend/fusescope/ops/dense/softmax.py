"""Softmax over the last dimension, bound by memory."""

from __future__ import annotations

from fusescope.core.schema import size
from fusescope.kernels import register_fakes
from fusescope.ops.common import softmax_rows
from fusescope.ops.common.cases import check_tensors, complete_rows
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "softmax"
TITLE = "Softmax"
SUMMARY = "out[r, j] = exp(x[r, j] - max x[r]) / sum exp(x[r] - max x[r]), over rows of the last dimension."
FAMILY = "softmax"
PARAMETERS = (
    size("rows", 4096, "rows", 1 << 27, (1, 64, 1024, 4096, 16384, 65536)),
    size("cols", 1024, "elements per row", 1 << 27, (128, 512, 1024, 4096, 16384, 65536)),
)
DTYPES, TOLERANCE = softmax_rows.DTYPES, softmax_rows.TOLERANCE


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    return {
        "x": random_tensor(
            (values["rows"], values["cols"]), dtype, device, generator_for(device, seed), contiguous
        )
    }


def arguments(inputs):
    return (inputs["x"],), {}


def call(inputs, impl):
    return softmax(inputs["x"], impl=impl)


def reference(inputs):
    import torch

    return torch.softmax(inputs["x"].double(), -1)


def cost(values, dtype):
    return softmax_rows.cost_of(values["rows"] * values["cols"], dtype)


def _softmax(x):
    import torch

    return torch.softmax(x, -1)


PEERS = torch_peers(_softmax, arguments, "torch.softmax")


def softmax(x, *, impl="auto"):
    """Softmax of x over its last dimension, in its dtype, summed in fp32; any shape of at least one
    dimension, any strides.

    float32, float16 or bfloat16, on the CPU or a CUDA device. Rows of nothing but -inf, and rows with +inf or
    NaN, become NaN, as in torch. impl: a kernel of cuda/softmax, or "auto" for the last of the ladder. Raises
    TypeError and ValueError for what is not a tensor it takes.
    """
    from fusescope import kernels

    check_tensors(NAME, DTYPES, x=x)
    if x.dim() < 1:
        raise ValueError("softmax takes a tensor of at least one dimension, not a single number")
    return kernels.call(NAME, x, impl=impl)


def _fake(x, impl):
    return x.new_empty(x.shape)


register_fakes({"softmax": _fake})
