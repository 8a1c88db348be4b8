"""Decoder layers by torch's operators and by ours, one after the other; the first in float64 is the
specification. Torch is imported inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusescope.ops.common import rope
from fusescope.ops.common.peers import plain
from fusescope.ops.decoder.layer import DecoderLayer


def in_double(t):
    """A tensor of a storage type in float64; None stays None."""
    return None if t is None else t.double()


def separate(x, layers, k_caches, v_caches, cos_sin, places, *, heads, kv_heads, activation, eps, wide=None):
    """(out, k_caches, v_caches) by plain torch, in x's dtype or as ``wide`` makes a tensor wider: then
    caches are copies. Weights in 8 bits are brought to that dtype first."""
    import torch

    functional = torch.nn.functional
    batch, width = x.shape[0], x.shape[-1]
    row, out, keys, values = torch.arange(batch, device=x.device), x.view(batch, width), [], []
    out = wide(out) if wide else out
    for layer, k_cache, v_cache in zip(layers, k_caches, v_caches):
        layer = layer.dequantised(out.dtype)
        if wide:
            layer, k_cache, v_cache = DecoderLayer(*map(wide, layer)), wide(k_cache), wide(v_cache)
        keys.append(k_cache)
        values.append(v_cache)
        dim = k_cache.shape[3]
        before = _norm(out, layer.norm1, layer.norm1_bias, eps)
        packed = functional.linear(before, layer.qkv, layer.qkv_bias).unflatten(-1, (-1, dim))
        q, k, v = packed.split((heads, kv_heads, kv_heads), 1)
        if layer.q_norm is not None:
            q, k = _norm(q, layer.q_norm, None, eps), _norm(k, layer.k_norm, None, eps)
        if cos_sin is not None:
            angles = cos_sin.view(batch, 1, -1)
            q, k = (rope.turned(t[:, None], angles)[:, 0] for t in (q, k))
        k_cache[row, :, places], v_cache[row, :, places] = k, v
        context = _attention(q.view(batch, kv_heads, -1, dim), k_cache, v_cache, places)
        out = out + functional.linear(context.reshape(batch, -1), layer.output, layer.output_bias)
        inner = _norm(out, layer.norm2, layer.norm2_bias, eps)
        inner = _activated(functional.linear(inner, layer.first, layer.first_bias), activation)
        out = out + functional.linear(inner, layer.second, layer.second_bias)
    return out.view(x.shape), keys, values


def _norm(x, weight, bias, eps):
    """LayerNorm where there is a bias, else RMSNorm as transformers' LlamaRMSNorm has it."""
    import torch

    if bias is not None:
        return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
    wide = x.float() if x.element_size() < 4 else x
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def _attention(q, keys, values, places):
    """Of q (B, H_kv, heads of a KV head, D) over the keys up to a sequence's place."""
    import torch

    hidden = torch.arange(keys.shape[2], device=q.device) > places[:, None]
    scores = (q @ keys.transpose(2, 3) * q.shape[-1] ** -0.5).masked_fill(hidden[:, None, None], -torch.inf)
    return torch.softmax(scores, -1) @ values


def _activated(x, activation: str):
    import torch

    if activation == "swiglu":
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def eager(arguments: Callable, inputs) -> Callable[[], Any]:
    def run():
        given, how = arguments(inputs)
        return separate(*given, **how)

    return plain(run)


def operators(arguments: Callable, inputs) -> Callable[[], Any]:
    """Our operators as models/run/decoder/layers.py calls them in a step."""

    def run():
        given, how = arguments(inputs)
        return _by_operators(*given, **how)

    return run


def _by_operators(x, layers, k_caches, v_caches, cos_sin, places, *, heads, kv_heads, activation, eps):
    from fusescope.ops.attention import attention_decode_step
    from fusescope.ops.layer import linear_weight_only
    from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
    from fusescope.ops.layer.linear import linear, linear_swiglu
    from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual
    from fusescope.ops.layer.swiglu import swiglu

    def norm(x, weight, bias):
        if bias is not None:
            return bias_residual_layernorm(x, None, None, weight, bias, eps)
        return rmsnorm_residual(x, weight, eps=eps)[0]

    def product(x, weight, scales, bias, **how):
        if scales is None:
            return linear(x, weight, bias, settled=True, **how)
        return linear_weight_only.product(x, weight, scales, bias, **how)

    batch, out = x.shape[0], x.contiguous().view(x.shape[0], 1, -1)
    lengths = (places + 1).int()
    angles = None if cos_sin is None else cos_sin.view(batch, 1, -1)
    for layer, k_cache, v_cache in zip(layers, k_caches, v_caches):
        before = norm(out, layer.norm1, layer.norm1_bias)
        packed = product(before, layer.qkv, layer.qkv_scales, layer.qkv_bias)
        q, k, v = packed.unflatten(-1, (-1, k_cache.shape[3])).split((heads, kv_heads, kv_heads), 2)
        if layer.q_norm is not None:
            q, k = norm(q, layer.q_norm, None), norm(k, layer.k_norm, None)
        context = attention_decode_step(
            q, k, v, angles, places, k_cache, v_cache, lengths, check=False, settled=True
        )
        output = layer.output, layer.output_scales, layer.output_bias
        out = product(context.flatten(-2), *output, residual=out)
        inner = norm(out, layer.norm2, layer.norm2_bias)
        first = layer.first, layer.first_scales, layer.first_bias
        if activation != "swiglu":
            inner = product(inner, *first, activation=activation)
        elif layer.first_scales is None:
            inner = linear_swiglu(inner, layer.first, layer.first_bias, settled=True)
        else:
            inner = swiglu(product(inner, *first))
        out = product(inner, layer.second, layer.second_scales, layer.second_bias, residual=out)
    return out.view(x.shape), k_caches, v_caches
