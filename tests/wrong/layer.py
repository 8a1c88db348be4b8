"""The layer's operators wrong on purpose, with their signatures: every one must be caught."""

import torch
from torch.nn.functional import embedding, gelu, layer_norm
from torch.nn.functional import linear as product


def norm_without_bias(x, bias, residual, weight, shift, eps):
    return layer_norm(x + residual, x.shape[-1:], weight, shift, eps)


def norm_before_residual(x, bias, residual, weight, shift, eps):
    return layer_norm(x + bias, x.shape[-1:], weight, shift, eps) + residual


def norm_corrected(x, bias, residual, weight, shift, eps):
    """The variance divided by n - 1."""
    s = (x + bias + residual).double()
    return ((s - s.mean(-1, keepdim=True)) / (s.var(-1, keepdim=True) + eps).sqrt() * weight + shift).to(
        x.dtype
    )


def gelu_by_sigmoid(x, bias, approximate):
    """x sigmoid(1.702 x), which is off by up to 0.02."""
    v = x + bias
    return v * torch.sigmoid(1.702 * v)


def gelu_of_the_other_form(x, bias, approximate):
    return gelu(x + bias, approximate="tanh" if approximate == "none" else "none")


def gelu_unwritten_tail(x, bias, approximate):
    right = gelu(x + bias, approximate=approximate)
    out = torch.empty_like(right)
    out[..., : x.shape[-1] // 8 * 8] = right[..., : x.shape[-1] // 8 * 8]
    return out


def _heads(qkv, bias, heads, kv_heads):
    batch, seq, _ = qkv.shape
    split = (qkv if bias is None else qkv + bias).view(batch, seq, heads + 2 * kv_heads, -1).transpose(1, 2)
    return [t.contiguous() for t in split.split((heads, kv_heads, kv_heads), 1)]


def heads_with_k_and_v_swapped(qkv, bias, heads, kv_heads):
    q, k, v = _heads(qkv, bias, heads, kv_heads)
    return q, v, k


def heads_without_bias(qkv, bias, heads, kv_heads):
    return tuple(_heads(qkv, None, heads, kv_heads))


def heads_not_transposed(qkv, bias, heads, kv_heads):
    return tuple(t.transpose(1, 2).reshape(t.shape) for t in _heads(qkv, bias, heads, kv_heads))


def heads_as_one_tensor(qkv, bias, heads, kv_heads):
    return qkv + bias


def padding_of_the_first_length(x, lengths, cu_seqlens, seq, total, direction):
    """Every sequence as long as the first."""
    if direction == "pack":
        return x.flatten(0, 1)[:total].contiguous()
    out = x.new_zeros((lengths.shape[0] * seq, x.shape[-1]))
    out[:total] = x
    return out.view(lengths.shape[0], seq, -1)


def padding_off_by_one(x, lengths, cu_seqlens, seq, total, direction):
    keep = torch.arange(seq) < lengths[:, None]
    if direction == "pack":
        return x.roll(1, 1)[keep]
    out = x.new_zeros((lengths.shape[0], seq, x.shape[-1]))
    out[keep] = x
    return out.roll(1, 1)


def embedding_without_type(word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps):
    at = torch.arange(word_ids.shape[-1]) if position_ids is None else position_ids
    return layer_norm(embedding(word_ids, word) + embedding(at, position), word.shape[1:], weight, shift, eps)


def embedding_that_ignores_position_ids(
    word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps
):
    s = embedding(word_ids, word) + position[: word_ids.shape[-1]] + embedding(type_ids, type_)
    return layer_norm(s, word.shape[1:], weight, shift, eps)


def linear_without_bias(x, weight, bias, activation, residual):
    return _finish(product(x, weight), activation, residual)


def linear_with_residual_inside(x, weight, bias, activation, residual):
    """The residual before the activation, as the epilogue of a matrix library adds it."""
    return _finish(product(x, weight, bias) + (0 if residual is None else residual), activation, None)


def linear_with_the_other_gelu(x, weight, bias, activation, residual):
    return _finish(product(x, weight, bias), "gelu_tanh" if activation == "gelu" else "gelu", residual)


def linear_in_sixteen_bits(x, weight, bias, activation, residual):
    """Parts of the sum over k kept in the storage type."""
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype)
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * weight[:, k]
    return _finish(total + bias, activation, residual)


def _finish(z, activation, residual):
    if activation:
        z = gelu(z, approximate="tanh" if activation == "gelu_tanh" else "none")
    return z if residual is None else z + residual
