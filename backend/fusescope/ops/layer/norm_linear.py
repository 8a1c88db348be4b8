"""A norm and the linear layer behind it, for few rows: what begins both halves of a decoder's layer."""

from __future__ import annotations

from fusescope.core.schema import Parameter, complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors
from fusescope.ops.common.matmul import EPILOGUE, LARGEST, accumulation_tolerance, check_linear
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, random_tensor, scale_tensor

NAME = "norm_linear"
TITLE = "Norm + linear layer, few rows"
SUMMARY = (
    "out = activation(norm(x) weightᵀ + bias): LayerNorm or RMSNorm of (rows, inputs), times a weight "
    "(outputs, inputs), accumulated in fp32."
)
FAMILY = "norm_linear"
NORMS = ("layernorm", "rmsnorm")
PARAMETERS = (
    size("rows", 1, "rows of x (tokens)", 1 << 16, (1, 2, 4, 8, 16)),
    size("inputs", 768, "elements of a row of x", LARGEST, (768, 1024, 2048, 4096)),
    size("outputs", 2304, "elements of a row of the result", LARGEST, (2304, 3072, 6144, 28672)),
    Parameter("norm", "choice", "layernorm", "layernorm (with shift) or rmsnorm (without)", choices=NORMS),
    EPILOGUE[0],
)
DTYPES = ("float32", "float16", "bfloat16")
EPS = 1e-5
FEW_ROWS = 16
"""Rows up to which v1_sixteen_rows computes."""
_LONGEST = 1 << 14  # elements of a row of which scale and shift fit a block's shared memory


def tolerance(values, dtype):
    """Of a product z over k terms of a normed row and weights of variance 1 / k, with a bias; u = 2^-24, w
    the rounding unit of dtype.

    A normed row has mean square 1 and a scale of 0.5 to 1.5, shifted by a standard normal where there is a
    shift: the sums are those of accumulation_tolerance, smaller by sqrt(k) as the weights are, larger by up
    to 1.5. A normed element errs by 160 u (see layernorm; 12e3 u more in rows of fewer than 8, which may be
    nearly constant) and in 16 bits by 2.02 w of its value, as LlamaRMSNorm rounds twice; k such errors times
    weights add up, with random signs, to six standard deviations of 2.02 w / sqrt(3) by 1.5: 10.6 w. z itself
    (up to 9) may be rounded before its bias is added: 9 w. GELU as in linear.
    """
    u, w, k = UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[dtype], values["inputs"]
    sums = accumulation_tolerance(k, dtype)
    absolute, relative = 1.5 * sums.absolute / k**0.5, sums.relative
    absolute += (160 + (12e3 if k < 8 else 0)) * u * k**0.5
    reason = f"fp32 norm of {k} elements and fp32 accumulation over them, rounded to {dtype}"
    if dtype != "float32":
        absolute += (19.6 + (480 if k < 8 else 0)) * w
        reason += ", the normed row and the product without its bias too"
    activation = values["activation"]
    if activation != "none":
        absolute, relative = 1.13 * absolute + 0.2 * w + 16 * u, 1.3 * relative + 1.01 * w + 16 * u
        reason += ", GELU of that rounded again"
    if activation == "gelu_tanh" and dtype != "float32":
        absolute += 2.5 * 2.0**-11
        reason += ", tanh by the GPU's instruction"
    return Tolerance(absolute, relative, reason)


TOLERANCE = {d: tolerance({"inputs": 768, "activation": "none"}, d) for d in DTYPES}


def validate(values):
    return complete(NAME, PARAMETERS, values, text=True)


def inputs(values, dtype, device, seed, contiguous=True):
    import torch

    g = generator_for(device, seed)
    rows, terms, outputs = values["rows"], values["inputs"], values["outputs"]
    weight = random_tensor((outputs, terms), "float32", device, g, contiguous) / terms**0.5
    vector = (terms,)
    return {
        "x": random_tensor((rows, terms), dtype, device, g, contiguous),
        "scale": scale_tensor(vector, dtype, device, g, contiguous),
        "shift": random_tensor(vector, dtype, device, g, contiguous)
        if values["norm"] == "layernorm"
        else None,
        "weight": weight.to(getattr(torch, dtype)),
        "bias": random_tensor((outputs,), dtype, device, g, contiguous),
        "activation": None if values["activation"] == "none" else values["activation"],
    }


def arguments(inputs):
    names = ("x", "scale", "shift", "weight", "bias", "activation")
    return (*(inputs[name] for name in names), EPS), {}


def call(inputs, impl):
    return norm_linear(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    x, scale, shift, weight, bias, activation, eps = arguments(inputs)[0]
    wide = (None if t is None else t.double() for t in (x, scale, shift, weight, bias))
    return _separate(*wide, activation, eps)


def cost(values, dtype):
    m, k, n = values["rows"], values["inputs"], values["outputs"]
    vectors = 2 if values["norm"] == "layernorm" else 1
    flop = 2.0 * m * n * k
    read = BYTES[dtype] * (m * k + k * n + n + vectors * k)
    return Cost(flop, flop, read, BYTES[dtype] * m * n, unit="matrix")


def _separate(x, scale, shift, weight, bias, activation, eps):
    import torch

    if shift is None:  # as transformers' LlamaRMSNorm has it
        wide = x.float() if x.element_size() < 4 else x
        normed = scale * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)
    else:
        normed = torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, eps)
    out = torch.nn.functional.linear(normed, weight, bias)
    if activation is None:
        return out
    return torch.nn.functional.gelu(out, approximate="tanh" if activation == "gelu_tanh" else "none")


def _two_kernels(inputs):
    given = arguments(inputs)[0]
    _apart(*given)  # measures which product is fastest
    return lambda: _apart(*given)


PEERS = {
    **torch_peers(
        _separate,
        arguments,
        "torch.nn.functional.layer_norm, or the operators of LlamaRMSNorm, then linear and gelu",
    ),
    "two_kernels": Peer(
        _two_kernels, "our bias_residual_layernorm or rmsnorm_residual, then our linear, each by auto"
    ),
}


def suits(x, weight) -> bool:
    """Whether rows x (..., K) and a weight (N, K) are taken by one kernel on their device: on the CPU always;
    on a GPU of compute capability 9.0 up to FEW_ROWS rows of float16 or bfloat16, dense and of multiples of 8
    elements up to 16384."""
    if x.device.type != "cuda":
        return True
    import torch

    terms = x.shape[-1]
    return (
        x.element_size() == 2
        and 0 < x.numel() <= FEW_ROWS * terms
        and terms % 8 == 0
        and terms <= _LONGEST
        and x.is_contiguous()
        and weight.is_contiguous()
        and (torch.compiler.is_compiling() or all(t.data_ptr() % 16 == 0 for t in (x, weight)))
        and torch.cuda.get_device_capability(x.device) == (9, 0)
    )


def _apart(x, scale, shift, weight, bias, activation, eps, settled=True):
    """The same by two of our kernels."""
    from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
    from fusescope.ops.layer.linear import linear
    from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual

    if shift is None:
        normed = rmsnorm_residual(x, scale, eps=eps)[0]
    else:
        normed = bias_residual_layernorm(x, None, None, scale, shift, eps)
    return linear(normed, weight, bias, activation, settled=settled)


def norm_linear(x, scale, shift, weight, bias=None, activation=None, eps=EPS, *, settled=False, impl="auto"):
    """activation(norm(x) weightᵀ + bias) in x's dtype; norm and sums in fp32, the normed row rounded to the
    dtype.

    x: (..., K), rows of one common stride are not copied; scale: (K,); shift: (K,) of a LayerNorm, None for
    an RMSNorm; weight: (N, K), rows side by side; bias: (N,) or None; activation: None, "gelu" (with erf) or
    "gelu_tanh". eps is added to the variance or the mean square. float32, float16 or bfloat16, on the CPU or
    a CUDA device.

    settled: the last kernel before this call on its stream writes nothing that is read here but x: on Hopper
    all else may then be read while that kernel still runs. impl: a kernel of cuda/norm_linear, or "auto" for
    the last of the ladder, and for a norm and linear apart where that does not take it (``suits``). The bits
    of a row depend on the number of rows. Raises TypeError and ValueError
    for operands that do not fit, core.errors.Unsupported for what the kernel does not take.
    """
    from fusescope import kernels

    given = {"x": x, "scale": scale, "weight": weight}
    given |= {k: t for k, t in (("shift", shift), ("bias", bias)) if t is not None}
    check_tensors(NAME, DTYPES, **given)
    code = check_linear(NAME, x, weight, bias, activation, None)
    for name, t in (("scale", scale), ("shift", shift)):
        if t is not None and t.shape != x.shape[-1:]:
            raise ValueError(
                f"{NAME} takes {name} of shape ({x.shape[-1]},), one element for each of a row; not "
                f"{tuple(t.shape)}"
            )
    if not eps >= 0:
        raise ValueError(f"eps is at least 0, not {eps}")
    if impl == "auto" and not suits(x, weight):
        return _apart(x, scale, shift, weight, bias, activation, eps, bool(settled))
    operands = (x, scale, shift, weight, bias, code, float(eps), bool(settled))
    return kernels.call(NAME, *operands, impl=impl)


def _fake(x, scale, shift, weight, bias, activation, eps, settled, impl):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


register_fakes({NAME: _fake})
