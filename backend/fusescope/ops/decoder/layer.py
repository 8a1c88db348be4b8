"""The weights of one layer as decoder_layers takes them, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fusescope.ops.common.cases import BYTES, check_tensors
from fusescope.ops.decoder.describe import NAME
from fusescope.ops.layer.linear_weight_only import dequantised

ACTIVATIONS = ("gelu", "gelu_tanh", "swiglu")
MATRICES = ("qkv", "output", "first", "second")
"""The weights that may be in 8 bits, each with ``<name>_scales`` then."""
SCALES = tuple(f"{name}_scales" for name in MATRICES)
EIGHT_BITS = ("int8", "float8_e4m3fn")
_NEEDED = ("norm1", "qkv", "output", "norm2", "first", "second")


class DecoderLayer(NamedTuple):
    """Weights of a layer, each contiguous; None where it has none of it. Scales, float32, are those of
    matrices in 8 bits, all four or none. The order is that of cuda/decoder_layers/decoder_layers.cuh."""

    norm1: Any = None
    norm1_bias: Any = None
    qkv: Any = None
    qkv_bias: Any = None
    q_norm: Any = None
    k_norm: Any = None
    output: Any = None
    output_bias: Any = None
    norm2: Any = None
    norm2_bias: Any = None
    first: Any = None
    first_bias: Any = None
    second: Any = None
    second_bias: Any = None
    qkv_scales: Any = None
    output_scales: Any = None
    first_scales: Any = None
    second_scales: Any = None

    def dequantised(self, dtype) -> DecoderLayer:
        """Matrices of 8 bits times their scales, rounded once to a floating dtype; itself without scales."""
        if self.qkv_scales is None:
            return self
        wide = {n: dequantised(getattr(self, n), getattr(self, f"{n}_scales"), dtype) for n in MATRICES}
        return self._replace(**wide, **dict.fromkeys(SCALES))


def layers_of(layers: Sequence[DecoderLayer | Mapping[str, Any]]) -> list[DecoderLayer]:
    """Each as a DecoderLayer; TypeError or ValueError for what is none, or lacks a weight."""
    return [
        layer if type(layer) is DecoderLayer and _is_whole(layer) else _layer(i, layer)
        for i, layer in enumerate(layers)
    ]


def check(
    x,
    layers: Sequence[DecoderLayer],
    k_caches,
    v_caches,
    cos_sin,
    places,
    heads: int,
    kv_heads: int,
    activation: str,
    eps: float,
) -> None:
    """TypeError or ValueError unless all arguments of decoder_layers fit together. A microsecond or two for
    each tensor: a call that the operator takes does without."""
    check_tensors(NAME, tuple(BYTES), x=x)
    if x.dim() not in (2, 3) or x.shape[1:-1].numel() != 1 or not x.numel():
        raise ValueError(f"x is (B, width) or (B, 1, width), not empty; its shape is {tuple(x.shape)}")
    if not (isinstance(heads, int) and isinstance(kv_heads, int) and heads >= 1 and kv_heads >= 1):
        raise ValueError(f"heads and kv_heads are at least 1, not {heads} and {kv_heads}")
    if heads % kv_heads:
        raise ValueError(f"heads is a multiple of kv_heads; {heads} is not one of {kv_heads}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {', '.join(ACTIVATIONS)}; not {activation!r}")
    if not 0 <= eps < float("inf"):
        raise ValueError(f"eps is a finite number, at least 0, not {eps}")
    if not layers or len(k_caches) != len(layers) or len(v_caches) != len(layers):
        raise ValueError(
            f"there is at least one layer, and of each a key and a value cache; not {len(layers)} layers, "
            f"{len(k_caches)} and {len(v_caches)} caches"
        )
    _check_caches(x, kv_heads, k_caches, v_caches)
    head_dim = k_caches[0].shape[3]
    for i, layer in enumerate(layers):
        _check_formats(x, i, layer, layers[0])
        _check_layer(x, i, layer, heads, kv_heads, head_dim, activation)
    _check_tokens(x, cos_sin, places, head_dim)


def _is_whole(layer: DecoderLayer) -> bool:
    return not any(getattr(layer, name) is None for name in _NEEDED) and (layer.q_norm is None) == (
        layer.k_norm is None
    )


def _layer(i: int, layer: DecoderLayer | Mapping[str, Any]) -> DecoderLayer:
    if isinstance(layer, Mapping):
        if unknown := set(layer) - set(DecoderLayer._fields):
            raise ValueError(
                f"layer {i} has no weight {', '.join(sorted(unknown))}; it has "
                f"{', '.join(DecoderLayer._fields)}"
            )
        layer = DecoderLayer(**layer)
    if not isinstance(layer, DecoderLayer):
        raise TypeError(f"layer {i} is a DecoderLayer or a mapping, not {type(layer).__name__}")
    if missing := [name for name in _NEEDED if getattr(layer, name) is None]:
        raise ValueError(f"layer {i} lacks {', '.join(missing)}")
    if (layer.q_norm is None) != (layer.k_norm is None):
        raise ValueError(f"layer {i} has q_norm or k_norm; it has both or neither")
    return layer


def _check_formats(x, i: int, layer: DecoderLayer, first: DecoderLayer) -> None:
    """Matrices are of one dtype, x's or of 8 bits; these have scales, those have none."""
    import torch

    for name in (*MATRICES, *SCALES):
        t = getattr(layer, name)
        if t is not None and not isinstance(t, torch.Tensor):
            raise TypeError(f"{NAME} takes tensors; {name} of layer {i} is {type(t).__name__}")
    kind, formats = first.qkv.dtype, tuple(getattr(torch, name) for name in EIGHT_BITS)
    if kind not in (x.dtype, *formats):
        raise TypeError(
            f"{', '.join(MATRICES)} are of the dtype of x, {x.dtype}, or {' or '.join(EIGHT_BITS)} with "
            f"scales; qkv of layer 0 is {kind}"
        )
    for name in MATRICES:
        matrix, scales = getattr(layer, name), getattr(layer, f"{name}_scales")
        if matrix.dtype != kind or matrix.device != x.device:
            raise ValueError(
                f"matrices of all layers are of one dtype on the device of x; qkv of layer 0 is {kind}, "
                f"{name} of layer {i} {matrix.dtype} on {matrix.device}"
            )
        if (scales is None) != (kind == x.dtype):
            has = "lacks" if scales is None else "has"
            raise ValueError(
                f"layer {i} {has} {name}_scales; there are scales of matrices of {' or '.join(EIGHT_BITS)} "
                f"alone, and qkv of layer 0 is {kind}"
            )
        if scales is None:
            continue
        if scales.dtype != torch.float32 or tuple(scales.shape) != tuple(matrix.shape[:1]):
            raise ValueError(
                f"{name}_scales of layer {i} are float32 of shape ({matrix.shape[0]},), one for each output; "
                f"not {scales.dtype} {tuple(scales.shape)}"
            )
        if scales.device != x.device or not scales.is_contiguous():
            raise ValueError(f"{name}_scales of layer {i} are contiguous, on the device of x")


def _check_layer(x, i: int, layer: DecoderLayer, heads, kv_heads, head_dim, activation) -> None:
    width, ffn = x.shape[-1], layer.second.shape[-1] if layer.second.dim() == 2 else 0
    packed, inner = (heads + 2 * kv_heads) * head_dim, heads * head_dim
    first = 2 * ffn if activation == "swiglu" else ffn
    vectors = width, packed, head_dim, head_dim, width, width, first, width
    biases = ("norm1_bias", "qkv_bias", "q_norm", "k_norm", "output_bias", "norm2_bias", "first_bias")
    shapes: dict[str, tuple[int, ...]] = {
        name: (n,) for name, n in zip((*biases, "second_bias"), vectors, strict=True)
    }
    shapes |= {
        "norm1": (width,),
        "qkv": (packed, width),
        "output": (width, inner),
        "norm2": (width,),
        "first": (first, width),
        "second": (width, ffn),
    }
    for name, t in zip(layer._fields, layer):
        if t is None or name not in shapes:
            continue
        if name not in MATRICES:
            check_tensors(NAME, tuple(BYTES), x=x, **{f"{name} of layer {i}": t})
        if tuple(t.shape) != shapes[name] or not ffn:
            raise ValueError(f"{name} of layer {i} has shape {shapes[name]}, not {tuple(t.shape)}")
        if not t.is_contiguous():
            raise ValueError(f"{name} of layer {i} is not contiguous; call contiguous() on it once")


def _check_caches(x, kv_heads: int, k_caches: Sequence[Any], v_caches: Sequence[Any]) -> None:
    first = k_caches[0]
    for name, caches in (("k_caches", k_caches), ("v_caches", v_caches)):
        for i, t in enumerate(caches):
            check_tensors(NAME, tuple(BYTES), x=x, **{f"{name}[{i}]": t})
            if t.dim() != 4 or t.shape[:2] != (x.shape[0], kv_heads) or not t.numel():
                raise ValueError(
                    f"a cache is (B, H_kv, S_max, D) with B = {x.shape[0]} and H_kv = {kv_heads}, not empty; "
                    f"{name}[{i}] has shape {tuple(t.shape)}"
                )
            if t.shape[3] > 1 and t.stride(3) != 1:
                raise ValueError(f"the elements of a row of {name}[{i}] do not lie side by side")
            steps = [s for s, n in zip(t.stride(), t.shape) if n > 1]
            if t.shape != first.shape or steps != [s for s, n in zip(first.stride(), first.shape) if n > 1]:
                raise ValueError(
                    f"all caches have one shape and one layout; {name}[{i}] has {tuple(t.shape)} with "
                    f"strides {t.stride()}, k_caches[0] {tuple(first.shape)} with {first.stride()}"
                )


def _check_tokens(x, cos_sin, places, head_dim: int) -> None:
    import torch

    batch = x.shape[0]
    if not isinstance(places, torch.Tensor) or places.dtype != torch.int64:
        raise TypeError(f"places is an int64 tensor, not {getattr(places, 'dtype', type(places).__name__)}")
    if tuple(places.shape) != (batch,) or places.device != x.device or not places.is_contiguous():
        raise ValueError(
            f"places is (B,) = ({batch},), contiguous, on the device of x; not {tuple(places.shape)} on "
            f"{places.device}"
        )
    if cos_sin is None:
        return
    if not isinstance(cos_sin, torch.Tensor) or cos_sin.dtype != torch.float32 or not cos_sin.is_contiguous():
        raise TypeError("cos_sin is a dense float32 tensor, (B, R) or (B, 1, R), or None")
    size = cos_sin.shape[-1] if cos_sin.dim() else 0
    fits = tuple(cos_sin.shape[:-1]) in ((batch,), (batch, 1)) and cos_sin.device == x.device
    if not fits or size < 2 or size % 2 or size > head_dim:
        raise ValueError(
            f"cos_sin is (B, R) or (B, 1, R) on the device of x, B = {batch}, R even and at most D = "
            f"{head_dim}; not {tuple(cos_sin.shape)} on {cos_sin.device}"
        )
