"""A KV cache of our own: static tensors, the tokens of each sequence side by side from its first place on."""

from __future__ import annotations

import torch

BUCKET = 256
"""Places that a cache grows by at least; a CUDA graph holds for one size."""


class Cache:
    """Per layer keys and values (B, H_kv, places, D); lengths: int32 (B,), the tokens of each sequence; most:
    the most that any may have, known without asking the device."""

    def __init__(self, layers: int, shape: tuple[int, int, int], dtype, device, most: int, tokens: int):
        batch, heads, size = shape
        self.limit = most
        places = self._rounded(tokens)
        self.keys, self.values = (
            [torch.zeros(batch, heads, places, size, dtype=dtype, device=device) for _ in range(layers)]
            for _ in range(2)
        )
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    @property
    def places(self) -> int:
        return self.keys[0].shape[2]

    def reserve(self, tokens: int) -> bool:
        """Room for so many tokens of a sequence; whether the tensors are new ones."""
        if tokens <= self.places:
            return False
        places = self._rounded(max(tokens, 2 * self.places))
        for side in (self.keys, self.values):
            for i, old in enumerate(side):
                side[i] = torch.zeros(
                    *old.shape[:2], places, old.shape[3], dtype=old.dtype, device=old.device
                )
                side[i][:, :, : old.shape[2]] = old
        return True

    def fill(self, layer: int, keys, values) -> None:
        """The prompt: (B, S, H_kv, D); what is behind a sequence's own tokens is overwritten before it is
        read."""
        self.keys[layer][:, :, : keys.shape[1]] = keys.transpose(1, 2)
        self.values[layer][:, :, : values.shape[1]] = values.transpose(1, 2)

    def append(self, layer: int, keys, values) -> None:
        """One token of each sequence, (B, 1, H_kv, D), behind the lengths[b] that it has."""
        at = self.lengths.long()[:, None, None, None].expand(-1, keys.shape[2], 1, keys.shape[3])
        self.keys[layer].scatter_(2, at, keys.transpose(1, 2))
        self.values[layer].scatter_(2, at, values.transpose(1, 2))

    def _rounded(self, tokens: int) -> int:
        return min(self.limit, -(-tokens // BUCKET) * BUCKET)
