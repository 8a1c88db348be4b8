"""What GEMM, batched GEMM and linear layers share: the error model; for products the specification, the peers
and the kernel that "auto" means; for linear layers the check of operands."""

from __future__ import annotations

from fusescope.core.schema import Parameter
from fusescope.ops.base import Peer, Tolerance
from fusescope.ops.common.cases import UNIT_ROUNDOFF
from fusescope.ops.common.peers import AUTOTUNES, COMPILES, compiled, plain, with_blas

LARGEST = 1 << 16
DTYPES = ("float32", "float16", "bfloat16")
ACTIVATION_CODES = {None: 0, "gelu": 1, "gelu_tanh": 2}
"""Activation of a linear layer: its number in the kernels."""
EPILOGUE = (
    Parameter(
        "activation",
        "choice",
        "none",
        "none, gelu (with erf) or gelu_tanh",
        choices=("none", "gelu", "gelu_tanh"),
    ),
    Parameter("residual", "choice", "no", "whether a tensor is added to the result", choices=("no", "yes")),
)
"""Parameters of a linear layer besides sizes."""


def accumulation_tolerance(k: int, dtype: str) -> Tolerance:
    """What a product over k terms, each factor standard normal, may be off by when it is accumulated in fp32,
    u = 2^-24.

    Rounding: each addition errs by up to u times the partial sum s_i, with a standard deviation of u |s_i| /
    sqrt(3). On the way to the result r, s_i is r i / k plus a random bridge of variance i (1 - i / k), so k
    additions give a standard deviation of u sqrt(k^2 / 18 + r^2 k / 9); six of them are at most 1.5 u k + 2 u
    sqrt(k) |r| (2 u k is allowed). Truncation: tensor cores cut off instead of rounding, so their errors add
    up with one sign: k / 16 steps of up to 2 u each, relative to partial sums of up to 4 sqrt(i) (u k^1.5 /
    3; 1 / 2 is allowed) and r / 2 (u k |r| / 16); 16-bit storage only. Storage: one rounding of the result.
    """
    u = UNIT_ROUNDOFF["float32"]
    absolute, relative = 2 * u * k, 2 * u * k**0.5 + 1.001 * UNIT_ROUNDOFF[dtype]
    if dtype != "float32":
        absolute += 0.5 * u * k**1.5
        relative += u * k / 16
    return Tolerance(
        absolute, relative, f"fp32 accumulation over k = {k} terms, then one rounding to {dtype}"
    )


def tolerance(values, dtype):
    """Of a product over values["k"] terms."""
    return accumulation_tolerance(values["k"], dtype)


TOLERANCE = {d: accumulation_tolerance(1024, d) for d in DTYPES}


def check_linear(op: str, x, weight, bias, activation, residual) -> int:
    """The kernels' number of the activation. ValueError unless x (..., K), weight (N, K), bias (N,) and
    residual (..., N) fit one another; bias and residual may be None."""
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1] or weight.shape[1] < 1:
        raise ValueError(
            f"{op} takes x (..., K) and weight (N, K), K at least 1; not {tuple(x.shape)} and "
            f"{tuple(weight.shape)}"
        )
    outputs = weight.shape[0]
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(
            f"{op} takes bias of shape ({outputs},), one element for each output; not {tuple(bias.shape)}"
        )
    if residual is not None and residual.shape != (*x.shape[:-1], outputs):
        raise ValueError(
            f"{op} takes residual of the result's shape, {(*x.shape[:-1], outputs)}; not "
            f"{tuple(residual.shape)}"
        )
    if activation not in ACTIVATION_CODES:
        raise ValueError(f"activation is None, 'gelu' or 'gelu_tanh', not {activation!r}")
    return ACTIVATION_CODES[activation]


_chosen: dict[tuple, str] = {}  # what a process found once holds for it: kernels are loaded once


def chosen(family: str, a) -> str:
    """The kernel that impl="auto" means for operand ``a``: the last of the ladder, and v2_tiled or v1_tiled
    (any GPU, any dtype) where that is the tensor-core kernel and it does not take the dtype. (kernels.choose
    leaves out what the GPU does not run.)"""
    key = family, a.device.type, a.device.index, a.element_size()
    found = _chosen.get(key)
    if found is None:
        _chosen[key] = found = _choose(*key)
    return found


def _choose(family: str, device_type: str, index: int | None, element_size: int) -> str:
    from fusescope import kernels

    name = kernels.choose(family, device_type if index is None else f"{device_type}:{index}")
    if "tensor_core" in name and element_size == 4:
        return {"gemm": "v2_tiled", "bmm": "v1_tiled"}[family]
    return name


def reference(inputs):
    """Both operands in float64."""
    return inputs["a"].double() @ inputs["b"].double()


def arguments(inputs):
    """As the operators' Python functions take them."""
    return (inputs["a"], inputs["b"]), {}


def _product(a, b):
    import torch

    return torch.matmul(a, b)


PEERS = {
    "eager": Peer(
        lambda i: plain(_product, i["a"], i["b"]),
        "torch.matmul (MKL or oneDNN on the CPU, cuBLAS on CUDA), fp32 sums",
    ),
    "compile": Peer(
        lambda i: compiled(_product, i["a"], i["b"]), "torch.compile of torch.matmul", compiles=COMPILES
    ),
    "autotune": Peer(
        lambda i: compiled(_product, i["a"], i["b"], mode="max-autotune-no-cudagraphs"),
        "torch.compile with max-autotune: the fastest of cuBLAS and Triton's templates",
        devices=("cuda",),
        compiles=AUTOTUNES,
    ),
    "cublaslt": Peer(
        lambda i: with_blas("cublaslt", _product, i["a"], i["b"]),
        "torch.matmul with cuBLASLt preferred (its eager time includes setting that)",
        devices=("cuda",),
    ),
}
