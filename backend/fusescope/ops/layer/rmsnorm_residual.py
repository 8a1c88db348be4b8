"""RMSNorm of x + residual, which gives the sum too, memory-bound: the step before every product of a
decoder's layer."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common import rows
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, complete_rows
from fusescope.ops.common.peers import torch_peers, vllm_operators
from fusescope.ops.common.tensors import generator_for, in_one, random_tensor, scale_tensor

NAME = "rmsnorm_residual"
TITLE = "Residual + RMSNorm"
SUMMARY = (
    "out = s / sqrt(mean of s² + eps) * weight of s = x + residual, and s itself, over rows of the last "
    "dimension."
)
FAMILY = "rmsnorm_residual"
PARAMETERS = (
    *rows.parameters(
        typical_rows=(1, 4, 16, 512, 2048, 8192), typical_cols=(128, 768, 1024, 2048, 4096, 8192), cols=4096
    ),
    Parameter("residual", "choice", "yes", "whether a tensor is added to x first", choices=("yes", "no")),
)
DTYPES = ("float32", "float16", "bfloat16")
EPS = 1e-6


def tolerance(values, dtype):
    """fp32 arithmetic, relative throughout: every term of the mean square is positive, so nothing cancels; u
    = 2^-24, v the unit of the storage type.

    A sum over W squares errs by some sqrt(W) u where roundings have random signs, its root by half of that; 8
    u for the other operations. In 16 bits torch's separate operators round the sum with the residual, the
    normed row and its product with the weight, v each, and the mean square of the rounded sum is off by v at
    most. The absolute part is the spacing of fp16's smallest numbers.
    """
    u, v = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    relative = (8 + values["cols"] ** 0.5) * u
    if dtype == "float32":
        return Tolerance(u, relative, f"fp32 arithmetic over rows of {values['cols']}, rounded to float32")
    return Tolerance(
        u,
        relative + 4.05 * v,
        f"fp32 arithmetic over rows of {values['cols']}; the sum, the norm and the result rounded to {dtype}",
    )


TOLERANCE = {d: tolerance({"cols": 4096}, d) for d in DTYPES}


def validate(values):
    return complete_rows(NAME, PARAMETERS, values)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    shape = (values["rows"], values["cols"])
    return {
        "x": random_tensor(shape, dtype, device, g, contiguous),
        "weight": scale_tensor(shape[1:], dtype, device, g, contiguous),
        "residual": random_tensor(shape, dtype, device, g, contiguous)
        if values["residual"] == "yes"
        else None,
    }


def arguments(inputs):
    return (inputs["x"], inputs["weight"], inputs["residual"], EPS), {}


def call(inputs, impl):
    return rmsnorm_residual(*arguments(inputs)[0], impl=impl)


def joined(result):
    return in_one(result, 2)


def reference(inputs):
    x, weight, residual, eps = arguments(inputs)[0]
    return joined(
        _separate(x.double(), weight.double(), None if residual is None else residual.double(), eps)
    )


def cost(values, dtype):
    n, added = values["rows"] * values["cols"], values["residual"] == "yes"
    flop = (5.0 if added else 4.0) * n  # the sum; its square and their sum; two products
    read = ((2 if added else 1) * n + values["cols"]) * BYTES[dtype]
    return Cost(flop, flop, read, (2 if added else 1) * n * BYTES[dtype])


def _separate(x, weight, residual, eps):
    """As transformers' LlamaRMSNorm has it: the norm in float32 (or more), rounded, times the weight."""
    total = x if residual is None else x + residual
    wide = total.float() if total.element_size() < 4 else total
    normed = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return weight * normed.to(total.dtype), total


def _by_torch(x, weight, residual, eps):
    import torch

    total = x if residual is None else x + residual
    return torch.nn.functional.rms_norm(total, x.shape[-1:], weight, eps), total


def _flashinfer(inputs):
    x, weight, residual, eps = arguments(inputs)[0]
    _refuse_in_place(residual, "fused_add_rmsnorm")
    from flashinfer.norm import rmsnorm

    return lambda: (rmsnorm(x, weight, eps), x)


def _vllm(inputs):
    x, weight, residual, eps = arguments(inputs)[0]
    _refuse_in_place(residual, "fused_add_rms_norm")
    operators = vllm_operators()

    def run():
        out = x.new_empty(x.shape)
        operators.rms_norm(out, x, weight, eps)
        return out, x

    return run


def _refuse_in_place(residual, name: str) -> None:
    if residual is not None:
        raise Unsupported(
            f"{name} works in place: its time would be that of copying both operands before each call too; "
            "compare with residual=no"
        )


PEERS = {
    **torch_peers(_separate, arguments, "an addition and the six operators of LlamaRMSNorm"),
    "rms_norm": Peer(
        lambda i: lambda: _by_torch(*arguments(i)[0]), "an addition and torch.nn.functional.rms_norm"
    ),
    "flashinfer": Peer(
        _flashinfer, "FlashInfer's rmsnorm, without a residual", ("cuda",), package="flashinfer-python"
    ),
    "vllm": Peer(_vllm, "vLLM's rms_norm, without a residual", ("cuda",), package="vllm"),
}


def rmsnorm_residual(x, weight, residual=None, eps=EPS, *, impl="auto"):
    """(RMSNorm of the sum s = x + residual over the last dimension, s), both dense in x's dtype; s is kept in
    fp32 for the norm. Without a residual s is x itself.

    x, residual: (..., W); rows of a common stride, as heads of a packed QKV product have, are not copied.
    weight: (W,). float32, float16 or bfloat16, on the CPU or a CUDA device. eps is added to the mean square.
    impl: a kernel of cuda/rmsnorm_residual, or "auto" for the last of the ladder. Raises TypeError and
    ValueError for operands that do not fit. (Zhang and Sennrich 2019, arXiv 1910.07467.)
    """
    from fusescope import kernels

    if weight is None:
        raise TypeError(f"{NAME} takes weight as a tensor; ones where the norm has none")
    rows.check(NAME, DTYPES, x, {"residual": residual}, {"weight": weight})
    if not eps >= 0:
        raise ValueError(f"eps is at least 0, not {eps}")
    out, total = kernels.call(NAME, x, residual, weight, float(eps), impl=impl)
    return out, x if residual is None else total


def _fake(x, residual, weight, eps, impl):
    return x.new_empty(x.shape), x.new_empty((0,) if residual is None else x.shape)


register_fakes({NAME: _fake})
