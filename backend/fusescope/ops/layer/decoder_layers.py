"""All layers of a decoder (GPT-2, Llama, Mistral, Qwen) for one new token of every sequence, bound by memory:
a decoding step between the embedding and the last norm."""

from __future__ import annotations

from functools import partial

from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.base import Peer
from fusescope.ops.common.cases import check_tensors
from fusescope.ops.common.tensors import generator_for, random_tensor, scale_tensor
from fusescope.ops.decoder.describe import (
    DTYPES,
    NAME,
    PARAMETERS,
    TOLERANCE,
    activation,
    cost,
    room,
    shapes,
    tolerance,
    validate,
)
from fusescope.ops.decoder.layer import MATRICES, DecoderLayer, check, layers_of
from fusescope.ops.decoder.peers import eager, in_double, operators, separate
from fusescope.ops.layer.linear_weight_only import quantised

__all__ = [
    "DTYPES",
    "NAME",
    "PARAMETERS",
    "TOLERANCE",
    "DecoderLayer",
    "cost",
    "decoder_layers",
    "tolerance",
    "validate",
]

TITLE = "Decoder layers"
SUMMARY = (
    "x + attention(norm1(x)), then x + ffn(norm2(x)), of every layer, for one new token of each sequence "
    "whose key and value go into the layer's KV cache."
)
FAMILY = "decoder_layers"
WRITES = ("k_caches", "v_caches")
_EPS = 1e-5
_BIAS = 0.1  # of a bias, as the norms' weights are about one


def inputs(values, dtype, device, seed, contiguous=True):
    """x (B, width); of each weight one tensor (layers, ...), of 8 bits its scales (layers, outputs) too,
    caches (layers, B, H_kv, S_max, D), cos_sin float32 (B, D) of the places int64 (B,), all of them
    ``cached``. contiguous=False: x strided, the heads of a place side by side in the caches, and each tensor
    from an odd address on."""
    import torch

    from fusescope.ops.common import rope

    g, layers, batch = generator_for(device, seed), values["layers"], values["batch"]
    found = {"x": random_tensor((batch, values["width"]), dtype, device, g, contiguous)}
    for name, shape in shapes(values).items():
        if name in MATRICES and "weights" in values:
            found |= _in_eight_bits(name, (layers, *shape), values["weights"], device, g)
        else:
            found[name] = _weight(name, (layers, *shape), dtype, device, g)
    places = room(values)
    shape = (layers, batch, values["kv_heads"], places, values["head_dim"])
    found |= {name: random_tensor(shape, dtype, device, g) for name in WRITES}
    if not contiguous:
        found |= {name: _odd(t) for name, t in found.items() if name not in ("x", *WRITES)}
        found |= {name: _odd(found[name].transpose(2, 3)).transpose(2, 3) for name in WRITES}
    at = torch.full((batch,), values["cached"], dtype=torch.int64, device=device)
    turns = values["layer"] != "gpt2"
    inverse = rope.inverse_frequencies(values["head_dim"], device=device)
    return found | {
        "cos_sin": rope.cos_sin(at, inverse) if turns else None,
        "places": at,
        "heads": values["heads"],
        "kv_heads": values["kv_heads"],
        "activation": activation(values),
        "eps": _EPS,
    }


def _odd(values):
    """The same values, dense from an odd address on."""
    return values.new_empty(values.numel() + 1)[1:].view(values.shape).copy_(values)


def _weight(name, shape, dtype, device, g):
    """Matrices keep the size of what they multiply; those before a sum with x make it small beside x, so that
    values stay of order one over layers, as GPT-2 is initialised."""
    import torch

    if len(shape) == 2 and not name.endswith("bias"):
        return scale_tensor(shape, dtype, device, g)
    drawn = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    for part, exact in zip(drawn, _drawn(name, shape, device, g)):
        part.copy_(exact)
    return drawn


def _in_eight_bits(name, shape, kind, device, g):
    """A matrix of each layer and its scales, by name."""
    import torch

    both = zip(*(quantised(exact, kind) for exact in _drawn(name, shape, device, g)))
    return dict(zip((name, f"{name}_scales"), map(torch.stack, both)))


def _drawn(name, shape, device, g):
    """Weights of one layer after the other in float32: all at once would be twice as much as is needed."""
    size = _BIAS if len(shape) == 2 else shape[-1] ** -0.5
    if name.startswith(("output", "second")):
        size *= (2 * shape[0]) ** -0.5
    for _ in range(shape[0]):
        yield random_tensor(shape[1:], "float32", device, g).mul_(size)


def arguments(inputs):
    given = {name: inputs[name].unbind() for name in DecoderLayer._fields if name in inputs}
    layers = [DecoderLayer(**dict(zip(given, weights))) for weights in zip(*given.values())]
    caches = inputs["k_caches"].unbind(), inputs["v_caches"].unbind()
    how = {name: inputs[name] for name in ("heads", "kv_heads", "activation", "eps")}
    return (inputs["x"], layers, *caches, inputs["cos_sin"], inputs["places"]), how


def call(inputs, impl):
    given, how = arguments(inputs)
    return decoder_layers(*given, **how, impl=impl)


def joined(result):
    """The output and all caches as one vector."""
    import torch

    if not isinstance(result, tuple | list) or len(result) != 3:
        return result
    out, *caches = result
    return torch.cat([out.reshape(-1)] + [t.reshape(-1) for side in caches for t in side])


def reference(inputs):
    given, how = arguments(inputs)
    return joined(separate(*given, **how, wide=in_double))


PEERS = {
    "eager": Peer(
        partial(eager, arguments),
        "torch's norms, linear, matmul, softmax and pointwise operators one by one; products summed in fp32, "
        "weights in 8 bits dequantised in each call",
    ),
    "operators": Peer(
        partial(operators, arguments),
        "our operators one after the other: norms, linear, SwiGLU in its product, attention_decode_step; of "
        "weights in 8 bits linear_weight_only, and SwiGLU by itself",
    ),
}


def decoder_layers(
    x,
    layers,
    k_caches,
    v_caches,
    cos_sin,
    places,
    *,
    heads,
    kv_heads,
    activation,
    eps,
    impl="auto",
):
    """(out, k_caches, v_caches): x after all layers, before the model's last norm, in x's shape and dtype;
    the key and value of each sequence's new token are written to its place in every layer's caches.

    x: (B, width) or (B, 1, width), float32, float16 or bfloat16, on the CPU or a CUDA device; forward only.
    layers: of each layer a DecoderLayer or a mapping with its names, dense tensors of x's dtype and device:
    norm1, norm2 (width,); qkv ((heads + 2 kv_heads) D, width), query, key and value heads; output (width,
    heads D); first (F, width), or for SwiGLU (2 F, width), gate then up; second (width, F). Optional:
    norm1_bias, norm2_bias (with one the norm is LayerNorm, without RMSNorm), qkv_bias, output_bias,
    first_bias, second_bias, and q_norm with k_norm (D,), RMSNorm of each head before it turns.
    Or qkv, output, first and second of every layer are int8, or all of them float8_e4m3fn, with qkv_scales,
    output_scales, first_scales and second_scales, float32, one for each output: a product is then
    scales · (a weightᵀ) + bias.
    k_caches, v_caches: of each layer (B, kv_heads, S_max, D), rows dense, all of one shape and layout;
    changed in place. cos_sin: float32 (B, R) or (B, 1, R), R / 2 cosines and R / 2 sines of each sequence's
    position (fusescope.ops.common.rope), by which query and key turn; None: nothing turns.
    places: int64 (B,), where the token's key goes; its query sees the keys 0 … places[b]. They are not read
    on the host: outside 0 … S_max - 1 the sequence's row is NaN and nothing of it is written.
    activation: "gelu" (with erf), "gelu_tanh" or "swiglu"; eps: of all norms. Sums are in fp32; norms, q, k,
    v, context, both sums with x and what second multiplies are rounded to x's dtype.

    impl: a kernel of cuda/decoder_layers, or "auto" for the last of the ladder. Raises TypeError and
    ValueError for arguments that do not fit, and core.errors.Unsupported for what the kernel does not take.
    """
    import torch

    from fusescope.ops.attention.dispatch import checks

    check_tensors(NAME, DTYPES, x=x)
    layers = layers_of(layers)
    given = x, layers, k_caches, v_caches, cos_sin, places, heads, kv_heads, activation, eps
    checks.no_gradient(torch, NAME, x, *k_caches, *v_caches)
    if torch.compiler.is_compiling():
        check(*given)
        return _call(*given, impl), k_caches, v_caches
    try:
        out = _call(*given, impl)
    except (RuntimeError, TypeError, AttributeError) as refused:
        if not isinstance(refused, Unsupported):
            check(*given)  # the operator has refused them: which one, and what it should be
        raise
    return out, k_caches, v_caches


def _call(x, layers, k_caches, v_caches, cos_sin, places, heads, kv_heads, activation, eps, impl):
    from fusescope import kernels

    x, none = x.contiguous(), x.new_empty(0)
    weights = [none if t is None else t for layer in layers for t in layer]
    caches = list(k_caches), list(v_caches)
    given = x, weights, *caches, cos_sin, places, heads, kv_heads, activation, float(eps)
    return kernels.call(NAME, *given, impl=impl)


def _fake(x, weights, k_caches, v_caches, cos_sin, places, heads, kv_heads, activation, eps, impl):
    return x.new_empty(x.shape)


register_fakes({NAME: _fake})
