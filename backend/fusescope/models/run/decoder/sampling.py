"""The next token of each sequence from its logits: the likeliest, or drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def chooser(
    sample: bool, temperature: float, top_k: int | None, top_p: float | None, seed: int, device
) -> Callable[[Any], Any]:
    """logits (B, vocab) in float32 → int64 (B,), on their device."""
    if not sample:
        return lambda logits: logits.argmax(-1)
    generator = torch.Generator(device).manual_seed(seed)

    def draw(logits):
        return torch.multinomial(
            probabilities(logits, temperature, top_k, top_p), 1, generator=generator
        ).squeeze(1)

    return draw


def probabilities(logits, temperature: float, top_k: int | None = None, top_p: float | None = None):
    """(B, vocab): of the logits over the temperature, of the top_k largest, and of those the fewest that
    together have top_p, at least one; as transformers orders these."""
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p is not None and top_p < 1.0:
        ordered, order = logits.sort(-1)
        gone = ordered.softmax(-1).cumsum(-1) <= 1.0 - top_p
        gone[:, -1] = False
        logits = logits.masked_fill(gone.scatter(1, order, gone), float("-inf"))
    return logits.softmax(-1)
