"""SwiGLU, the activation between the products of a decoder's feed-forward network, bound by memory."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common import rows
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors, complete_rows
from fusescope.ops.common.peers import torch_peers, vllm_operators
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "swiglu"
TITLE = "SwiGLU"
SUMMARY = "out = silu(gate) * up, silu(g) = g / (1 + exp(-g)), over rows of the last dimension."
FAMILY = "swiglu"
LAYOUTS = ("packed", "apart")
PARAMETERS = (
    *rows.parameters(
        typical_rows=(1, 4, 16, 512, 2048, 8192), typical_cols=(3072, 8192, 11008, 12288, 14336), cols=14336
    ),
    Parameter(
        "layout",
        "choice",
        "packed",
        "packed: gate and up are the halves of each row of one tensor (rows, 2 cols); apart: two tensors",
        choices=LAYOUTS,
    ),
)
DTYPES = ("float32", "float16", "bfloat16")


def tolerance(values, dtype):
    """fp32 arithmetic: the exponential's argument (up to 8 for normal inputs) carries its rounding into the
    result, 8 u; 16 u are allowed. In 16 bits silu(gate) may be rounded before the product. The absolute part
    is the spacing of fp16's smallest numbers, of which a silu rounded before has two times up."""
    u, v = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    if dtype == "float32":
        return Tolerance(u, 16 * u, "fp32 arithmetic, one rounding to float32")
    return Tolerance(4 * u, 16 * u + 2.01 * v, f"fp32 arithmetic; silu and the product rounded to {dtype}")


TOLERANCE = {d: tolerance({}, d) for d in DTYPES}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    shape = (values["rows"], values["cols"])
    if values["layout"] == "packed":
        packed = (shape[0], 2 * shape[1])
        return {"gate": random_tensor(packed, dtype, device, g, contiguous), "up": None}
    return {name: random_tensor(shape, dtype, device, g, contiguous) for name in ("gate", "up")}


def arguments(inputs):
    return (inputs["gate"], inputs["up"]), {}


def call(inputs, impl):
    return swiglu(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    gate, up = arguments(inputs)[0]
    return _separate(gate.double(), None if up is None else up.double())


def cost(values, dtype):
    n = values["rows"] * values["cols"]
    flop = 5.0 * n  # the exponential, a sum, a division, two products
    return Cost(flop, flop, 2 * n * BYTES[dtype], n * BYTES[dtype])


def _separate(gate, up):
    import torch

    if up is None:
        gate, up = gate.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def _flashinfer(inputs):
    gate = _packed(inputs, "silu_and_mul")
    from flashinfer.activation import silu_and_mul

    return lambda: silu_and_mul(gate)


def _vllm(inputs):
    gate, operators = _packed(inputs, "silu_and_mul"), vllm_operators()

    def run():
        out = gate.new_empty((*gate.shape[:-1], gate.shape[-1] // 2))
        operators.silu_and_mul(out, gate)
        return out

    return run


def _packed(inputs, name: str):
    if inputs["up"] is not None or not inputs["gate"].is_contiguous():
        raise Unsupported(f"{name} takes one dense tensor (rows, 2 cols); choose layout=packed")
    return inputs["gate"]


PEERS = {
    **torch_peers(_separate, arguments, "torch.nn.functional.silu and a product"),
    "flashinfer": Peer(
        _flashinfer, "FlashInfer's silu_and_mul of one tensor", ("cuda",), package="flashinfer-python"
    ),
    "vllm": Peer(_vllm, "vLLM's silu_and_mul of one tensor", ("cuda",), package="vllm"),
}


def swiglu(gate, up=None, *, impl="auto"):
    """silu(gate) * up, elementwise, dense in gate's dtype with fp32 arithmetic.

    gate, up: (..., F), rows any distance apart; or gate alone, (..., 2 F), whose rows hold gate, then up, as
    a product with both weights gives them: (..., F). float32, float16 or bfloat16, on the CPU or a CUDA
    device. impl: a kernel of cuda/swiglu, or "auto" for the last of the ladder. Raises TypeError and
    ValueError for operands that do not fit. (Shazeer 2020, arXiv 2002.05202.)
    """
    from fusescope import kernels

    if up is None:
        check_tensors(NAME, DTYPES, gate=gate)
        if gate.dim() < 1 or gate.shape[-1] % 2:
            raise ValueError(
                f"{NAME} takes one tensor with rows of gate and up, an even number of elements; not "
                f"{tuple(gate.shape)}"
            )
        half = gate.shape[-1] // 2
        gate, up = gate.narrow(-1, 0, half), gate.narrow(-1, half, half)
    else:
        check_tensors(NAME, DTYPES, gate=gate, up=up)
        if gate.dim() < 1 or gate.shape != up.shape:
            raise ValueError(
                f"{NAME} takes gate and up of one shape with at least one dimension; not "
                f"{tuple(gate.shape)} and {tuple(up.shape)}"
            )
    return kernels.call(NAME, gate, up, impl=impl)


def _fake(gate, up, impl):
    return gate.new_empty(gate.shape)


register_fakes({NAME: _fake})
