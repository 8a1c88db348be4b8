"""Forgets the type embedding."""

import torch
from torch.nn.functional import embedding, layer_norm

ON = {"embedding_layernorm": {"batch": 2, "seq": 7, "cols": 24, "vocab": 9}}
DTYPES = ("float32", "bfloat16")


def wrong(word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps):
    at = torch.arange(word_ids.shape[-1]) if position_ids is None else position_ids
    return layer_norm(embedding(word_ids, word) + embedding(at, position), word.shape[1:], weight, shift, eps)
