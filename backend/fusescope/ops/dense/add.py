"""Tensor add: the simplest member of the ladder, bound by memory from end to end."""

from __future__ import annotations

from fusescope.core.schema import complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "add"
TITLE = "Tensor add"
SUMMARY = "out = a + b, elementwise over two tensors of n elements."
FAMILY = "add"
PARAMETERS = (size("n", 1 << 20, "elements", 1 << 31, tuple(1 << k for k in range(10, 29, 2))),)
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {
    "float32": Tolerance(1e-6, 6e-8, "half an ulp of fp32 (2^-24), one rounding"),
    "float16": Tolerance(1e-6, 4.9e-4, "half an ulp of fp16 (2^-11), one rounding"),
    "bfloat16": Tolerance(1e-6, 3.95e-3, "half an ulp of bf16 (2^-8), one rounding"),
}


def validate(values):
    return complete(NAME, PARAMETERS, values, text=True)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    return {k: random_tensor((values["n"],), dtype, device, g, contiguous) for k in ("a", "b")}


def arguments(inputs):
    return (inputs["a"], inputs["b"]), {}


def call(inputs, impl):
    return add(inputs["a"], inputs["b"], impl=impl)


def reference(inputs):
    return inputs["a"].double() + inputs["b"].double()


def cost(values, dtype):
    size = 4 if dtype == "float32" else 2
    n = values["n"]
    return Cost(n, n, 2 * n * size, n * size)


def _add(a, b):
    import torch

    return torch.add(a, b)


PEERS = torch_peers(_add, arguments, "torch.add")


def add(a, b, *, impl="auto"):
    """a + b for tensors of one shape, dtype and device. impl: a kernel of cuda/add, or "auto" for the last of
    the ladder."""
    from fusescope import kernels

    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        raise ValueError(
            f"add takes two tensors of one shape, dtype and device, not {tuple(a.shape)} {a.dtype} "
            f"on {a.device} "
            f"and {tuple(b.shape)} {b.dtype} on {b.device}"
        )
    return kernels.call("add", a, b, impl=impl)


def _fake(a, b, impl):
    return a.new_empty(a.shape)


register_fakes({"add": _fake})
