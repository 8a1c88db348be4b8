"""Matrix product, from one thread per output to tensor cores."""

from __future__ import annotations

from fusescope.core.schema import complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost
from fusescope.ops.common import matmul
from fusescope.ops.common.cases import BYTES, check_tensors
from fusescope.ops.common.matmul import LARGEST, chosen
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "gemm"
TITLE = "Matrix product (GEMM)"
SUMMARY = "C = A B: (m, k) times (k, n), accumulated in fp32."
FAMILY = "gemm"
_TYPICAL = (128, 256, 512, 1024, 2048, 4096, 8192)
PARAMETERS = (
    size("m", 1024, "rows of A and C", LARGEST, _TYPICAL),
    size("n", 1024, "columns of B and C", LARGEST, _TYPICAL),
    size("k", 1024, "columns of A, rows of B", LARGEST, _TYPICAL),
)
DTYPES, TOLERANCE, tolerance = matmul.DTYPES, matmul.TOLERANCE, matmul.tolerance
PEERS, arguments, reference = matmul.PEERS, matmul.arguments, matmul.reference


def validate(values):
    return complete(NAME, PARAMETERS, values, text=True)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    m, n, k = (values[name] for name in ("m", "n", "k"))
    return {
        "a": random_tensor((m, k), dtype, device, g, contiguous),
        "b": random_tensor((k, n), dtype, device, g, contiguous),
    }


def call(inputs, impl):
    return gemm(inputs["a"], inputs["b"], impl=impl)


def auto(inputs):
    return chosen(FAMILY, inputs["a"])


def cost(values, dtype):
    m, n, k = (values[name] for name in ("m", "n", "k"))
    flop = 2.0 * m * n * k
    return Cost(flop, flop, BYTES[dtype] * (m * k + k * n), BYTES[dtype] * m * n, unit="matrix")


def gemm(a, b, *, impl="auto"):
    """The matrix product of a (m, k) and b (k, n): (m, n), row-major, in their dtype, accumulated in fp32.

    float32, float16 or bfloat16, on the CPU or a CUDA device; any strides and storage offset. impl: a kernel
    of cuda/gemm, or "auto": the last of the ladder that takes the dtype. Raises TypeError and ValueError for
    operands that do not fit, and core.errors.Unsupported where the named kernel does not take them.
    """
    from fusescope import kernels

    check_tensors(NAME, DTYPES, a=a, b=b)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"gemm takes (m, k) and (k, n), not {tuple(a.shape)} and {tuple(b.shape)}; bmm takes batches"
        )
    return kernels.call(NAME, a, b, impl=chosen(FAMILY, a) if impl == "auto" else impl)


def _fake(a, b, impl):
    return a.new_empty((a.shape[0], b.shape[1]))


register_fakes({"gemm": _fake})
