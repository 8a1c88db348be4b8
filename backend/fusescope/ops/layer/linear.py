"""A linear layer with bias, GELU and residual: cuBLASLt with what its epilogues do, by an algorithm chosen by
measurement."""

from __future__ import annotations

from fusescope.core.schema import complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors
from fusescope.ops.common.matmul import (
    ACTIVATION_CODES,
    EPILOGUE,
    LARGEST,
    accumulation_tolerance,
    check_linear,
)
from fusescope.ops.common.peers import AUTOTUNES, COMPILES, compiled, plain
from fusescope.ops.common.tensors import generator_for, random_tensor

NAME = "linear"
TITLE = "Linear layer"
SUMMARY = (
    "out = activation(x weightᵀ + bias) + residual: (rows, inputs) times a weight (outputs, inputs), "
    "accumulated in fp32."
)
FAMILY = "linear"
_SIZES = (64, 256, 512, 768, 1024, 3072, 4096)
PARAMETERS = (
    size("rows", 4096, "rows of x (tokens)", 1 << 22, (1, 128, 1024, 4096, 8192, 32768)),
    size("inputs", 768, "elements of a row of x", LARGEST, _SIZES),
    size("outputs", 768, "elements of a row of the result", LARGEST, _SIZES),
    *EPILOGUE,
)
DTYPES = ("float32", "float16", "bfloat16")


def tolerance(values, dtype):
    """Of a product z over k terms of standard normal x and weights of variance 1 / k, with a bias; u = 2^-24,
    w the rounding unit.

    The sums of accumulation_tolerance, smaller by sqrt(k) as the weights are; z itself may be rounded to the
    storage type, as torch's separate operators do; and before its bias is added where a size is no multiple
    of 8, for which cuBLASLt need not have an epilogue: 6 w of a product of up to 6. A residual is added after
    that: z (up to 6) carries 6 w. GELU's slope is at most 1.13, and relative to its value 1.3 for z > 0 and
    0.2 / |gelu| for z < 0 (see bias_gelu). cuBLASLt's GELU takes tanh from the GPU's own instruction, good to
    2^-11 of its value, of which GELU has |z| / 2 (5 / 2).
    """
    u, w = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype]
    sums = accumulation_tolerance(values["inputs"], dtype)
    absolute, relative = sums.absolute / values["inputs"] ** 0.5, sums.relative
    if dtype != "float32" and (values["inputs"] % 8 or values["outputs"] % 8):
        absolute += 6 * w
    activation, reason = (
        values["activation"],
        f"fp32 accumulation over k = {values['inputs']} terms, rounded to {dtype}",
    )
    if activation != "none":
        absolute, relative = 1.13 * absolute + 0.2 * w + 16 * u, 1.3 * relative + 1.01 * w + 16 * u
        reason += ", GELU of that rounded again"
    if activation == "gelu_tanh" and dtype != "float32":
        absolute += 2.5 * 2.0**-11
        reason += ", tanh by the GPU's instruction"
    if values["residual"] == "yes":
        absolute += 6 * w
        reason += ", the sum with the residual rounded too"
    return Tolerance(absolute, relative, reason)


TOLERANCE = {
    d: tolerance({"inputs": 768, "outputs": 768, "activation": "none", "residual": "no"}, d) for d in DTYPES
}


def validate(values):
    return complete(NAME, PARAMETERS, values, text=True)


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    rows, terms, outputs = values["rows"], values["inputs"], values["outputs"]
    weight = (random_tensor((outputs, terms), "float32", device, g) / terms**0.5).to(_torch_dtype(dtype))
    if not contiguous:  # the transpose of a dense (inputs, outputs), as GPT-2 holds its weights
        weight = weight.t().contiguous().t()
    return {
        "x": random_tensor((rows, terms), dtype, device, g, contiguous),
        "weight": weight,
        "bias": random_tensor((outputs,), dtype, device, g, contiguous),
        "residual": random_tensor((rows, outputs), dtype, device, g, contiguous)
        if values["residual"] == "yes"
        else None,
        "activation": None if values["activation"] == "none" else values["activation"],
    }


def arguments(inputs):
    return tuple(inputs[name] for name in ("x", "weight", "bias", "activation", "residual")), {}


def call(inputs, impl):
    return linear(*arguments(inputs)[0], impl=impl)


def auto(inputs):
    x, weight, bias, activation, residual = arguments(inputs)[0]
    return choose(x, weight, bias, residual, ACTIVATION_CODES[activation])


def choose(x, weight, bias, residual, activation: int) -> str:
    """The kernel that "auto" means: on a GPU the fastest for the case
    (fusescope.ops.common.algorithms)."""
    if x.device.type != "cuda":
        from fusescope import kernels

        return kernels.choose(FAMILY, x.device.type)
    from fusescope.ops.common import algorithms

    return algorithms.choose(x, weight, bias, residual, activation)


def reference(inputs):
    x, weight, bias, activation, residual = arguments(inputs)[0]
    return _separate(
        x.double(),
        weight.double(),
        bias.double(),
        activation,
        None if residual is None else residual.double(),
    )


def cost(values, dtype):
    m, k, n = values["rows"], values["inputs"], values["outputs"]
    added = m * n if values["residual"] == "yes" else 0
    flop = 2.0 * m * n * k
    return Cost(flop, flop, BYTES[dtype] * (m * k + k * n + n + added), BYTES[dtype] * m * n, unit="matrix")


def _torch_dtype(name: str):
    import torch

    return getattr(torch, name)


def _separate(x, weight, bias, activation, residual):
    import torch

    out = torch.nn.functional.linear(x, weight, bias)
    if activation is not None:
        out = torch.nn.functional.gelu(out, approximate="tanh" if activation == "gelu_tanh" else "none")
    return out if residual is None else out + residual


PEERS = {
    "eager": Peer(
        lambda i: plain(_separate, *arguments(i)[0]),
        "torch.nn.functional.linear, gelu and an addition; products summed in fp32",
    ),
    "compile": Peer(
        lambda i: compiled(_separate, *arguments(i)[0]), "torch.compile of the same", compiles=COMPILES
    ),
    "autotune": Peer(
        lambda i: compiled(_separate, *arguments(i)[0], mode="max-autotune-no-cudagraphs"),
        "torch.compile with max-autotune: the fastest of cuBLAS and Triton's templates",
        devices=("cuda",),
        compiles=AUTOTUNES,
    ),
}


def linear(x, weight, bias=None, activation=None, residual=None, *, settled=False, impl="auto"):
    """activation(x weightᵀ + bias) + residual in x's dtype, products summed in fp32 (never TF32, never 16-bit
    parts).

    x: (..., K), any strides; weight: (N, K), rows side by side, or the transpose of a dense (K, N), neither
    is copied; bias: (N,) or None; activation: None, "gelu" (with erf) or "gelu_tanh"; residual: (..., N) or
    None. float32, float16 or bfloat16, on the CPU (torch's own product) or a CUDA device (cuBLASLt).

    settled: weight and bias are not written by the last kernel before this call on its stream (a model's
    weights never are): on Hopper they may then be read while that kernel still runs.
    impl: a kernel of cuda/linear, or "auto" for the fastest: with settled weights and up to 8 rows
    v6_whole_lines where it takes them. v2_measured times what cuBLASLt offers when it meets a problem for the
    first time, and "auto" our own products as well, outside stream capture and torch.compile; there a known
    result is used, else cuBLASLt's first guess. What was found is kept on disk for the device and library:
    fusescope.ops.common.algorithms. Raises TypeError and ValueError for operands that do not fit, and
    core.errors.Unsupported where cuBLASLt has no algorithm.
    """
    from fusescope import kernels

    given = {"x": x, "weight": weight} | {
        k: t for k, t in (("bias", bias), ("residual", residual)) if t is not None
    }
    check_tensors(NAME, DTYPES, **given)
    code = check_linear(NAME, x, weight, bias, activation, residual)
    operands = (x, weight, bias, residual, code)
    if x.device.type == "cuda" and x.numel():
        from fusescope.ops.common import algorithms

        if impl == "auto":
            impl = algorithms.choose(*operands, bool(settled))
        elif impl == algorithms.IMPL:
            algorithms.ensure(*operands)
    return kernels.call(NAME, *operands, bool(settled), impl=impl)


def linear_swiglu(x, weight, bias=None, *, settled=False, impl="auto"):
    """swiglu(linear(x, weight, bias)), (..., F): x (..., K); weight (2 F, K), its first F rows the gate's
    and the others up's; bias (2 F,) or None.

    settled: as linear takes it. impl: "auto" is one launch where a kernel for this GPU makes it (Hopper, 16
    bits, up to 8 rows), else the two calls, as under torch.compile; by name, that kernel (v6_whole_lines, up
    to 16 rows), with the bits of linear by it, then swiglu. Raises what linear does.
    """
    from fusescope import kernels
    from fusescope.ops.common import algorithms
    from fusescope.ops.layer.swiglu import swiglu

    check_tensors("linear_swiglu", DTYPES, x=x, weight=weight, **({} if bias is None else {"bias": bias}))
    check_linear("linear_swiglu", x, weight, bias, None, None)
    if weight.shape[0] % 2:
        raise ValueError(f"linear_swiglu takes a weight of gate and up, 2 F rows; not {weight.shape[0]}")
    if impl == "auto":
        if not _in_one_launch(x, weight, bias):
            return swiglu(linear(x, weight, bias, settled=settled))
        impl = algorithms.FEW_ROWS
    return kernels.call("linear_swiglu", x, weight, bias, bool(settled), impl=impl)


def _in_one_launch(x, weight, bias) -> bool:
    """Whether "auto" leaves SwiGLU to the product's kernel."""
    import torch

    if x.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    from fusescope.ops.common import algorithms

    return algorithms.for_few_rows(x, weight, bias)


def _fake(x, weight, bias, residual, activation, settled, impl):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _fake_swiglu(x, weight, bias, settled, impl):
    return x.new_empty((*x.shape[:-1], weight.shape[0] // 2))


register_fakes({NAME: _fake, "linear_swiglu": _fake_swiglu})
