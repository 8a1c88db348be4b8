"""Batched matrix product with whatever batch dimensions torch.matmul takes."""

from __future__ import annotations

import re
from math import prod

from fusescope.core.schema import Parameter, complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost
from fusescope.ops.common import matmul
from fusescope.ops.common.cases import BYTES, check_tensors
from fusescope.ops.common.matmul import LARGEST, chosen
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "bmm"
TITLE = "Batched matrix product"
SUMMARY = (
    "out = A B over broadcast batch dimensions: (batch_a, m, k) times (batch_b, k, n), accumulated in fp32."
)
FAMILY = "bmm"
_TYPICAL = (32, 64, 128, 256, 512, 1024, 2048)
PARAMETERS = (
    Parameter(
        "batch_a",
        "text",
        "8",
        "batch dimensions of A, as 2x3; none = a single matrix",
        typical=("1", "8", "12x8", "12x1"),
    ),
    Parameter(
        "batch_b",
        "text",
        "8",
        "batch dimensions of B, broadcast against A's",
        typical=("none", "1", "8", "12x8"),
    ),
    size("m", 512, "rows of each A", LARGEST, _TYPICAL),
    size("n", 512, "columns of each B", LARGEST, _TYPICAL),
    size("k", 64, "columns of each A, rows of each B", LARGEST, _TYPICAL),
)
DTYPES, TOLERANCE, tolerance = matmul.DTYPES, matmul.TOLERANCE, matmul.tolerance
PEERS, arguments, reference = matmul.PEERS, matmul.arguments, matmul.reference


def batch_shape(text) -> tuple[int, ...]:
    """(2, 3) of "2x3", () of "none"; ValueError for anything else."""
    text = str(text).strip().lower()
    if text in ("none", ""):
        return ()
    if not re.fullmatch(r"\d+(x\d+)*", text) or any(int(d) < 1 for d in text.split("x")):
        raise ValueError(
            "batch dimensions are whole numbers of at least 1 joined by x, such as 2x3, or none; "
            f"not {text!r}"
        )
    return tuple(int(d) for d in text.split("x"))


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of two batch shapes, aligned at the end; ValueError where a pair is neither equal nor
    1."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b)
    shape = []
    for p, q in pairs:
        if p != q and 1 not in (p, q):
            raise ValueError(f"batch dimensions must be equal or 1 from the last one on; {a} and {b} are not")
        shape.append(max(p, q))
    return tuple(shape)


def validate(values):
    values = complete(NAME, PARAMETERS, values, text=True)
    a, b = batch_shape(values["batch_a"]), batch_shape(values["batch_b"])
    broadcast(a, b)
    return values | {"batch_a": "x".join(map(str, a)) or "none", "batch_b": "x".join(map(str, b)) or "none"}


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    m, n, k = (values[name] for name in ("m", "n", "k"))
    a, b = (*batch_shape(values["batch_a"]), m, k), (*batch_shape(values["batch_b"]), k, n)
    return {
        "a": random_tensor(a, dtype, device, g, contiguous),
        "b": random_tensor(b, dtype, device, g, contiguous),
    }


def call(inputs, impl):
    return bmm(inputs["a"], inputs["b"], impl=impl)


def auto(inputs):
    return chosen(FAMILY, inputs["a"])


def cost(values, dtype):
    m, n, k = (values[name] for name in ("m", "n", "k"))
    a, b = batch_shape(values["batch_a"]), batch_shape(values["batch_b"])
    batch = prod(broadcast(a, b))
    flop = 2.0 * batch * m * n * k
    read = prod(a) * m * k + prod(b) * k * n
    return Cost(flop, flop, BYTES[dtype] * read, BYTES[dtype] * batch * m * n, unit="matrix")


def bmm(a, b, *, impl="auto"):
    """The matrix products of a (..., m, k) and b (..., k, n) over broadcast batch dimensions, with the shapes
    of torch.matmul.

    A 1-D operand is a row (a) or a column (b), and its dimension is absent from the result. float32, float16
    or bfloat16 on the CPU or a CUDA device; any strides; broadcasting copies nothing. impl: a kernel of
    cuda/bmm, or "auto": the last of the ladder that takes the dtype. Raises TypeError and ValueError for
    operands that do not fit, and core.errors.Unsupported where the named kernel does not take them.
    """
    from fusescope import kernels

    check_tensors(NAME, DTYPES, a=a, b=b)
    if a.dim() < 1 or b.dim() < 1 or a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise ValueError(f"bmm takes (..., m, k) and (..., k, n), not {tuple(a.shape)} and {tuple(b.shape)}")
    broadcast(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return kernels.call(NAME, a, b, impl=chosen(FAMILY, a) if impl == "auto" else impl)


def _fake(a, b, impl):
    import torch

    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ())))


register_fakes({"bmm": _fake})
