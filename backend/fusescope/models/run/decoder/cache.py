"""A KV cache of our own: static tensors, the tokens of each sequence side by side from its first place on; a
layer with a sliding window is a ring that holds the last tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

BUCKET = 256
"""Places that a cache grows by at least; a CUDA graph holds for one size."""


class Cache:
    """Per layer keys and values (B, H_kv, places, D); lengths: int32 (B,), the tokens of each sequence.

    windows: of each layer how many tokens a token sees, itself among them; None: all. The token at position p
    is at place p, in a layer with a window at place p modulo that, because the order of keys does not matter
    to attention: what a step reads are the first ``seen`` places, all of them once the ring is full."""

    def __init__(self, windows: Sequence[int | None], shape: tuple[int, int, int], dtype, device):
        batch, heads, size = shape
        self.windows = tuple(windows)
        self.keys, self.values = (
            [torch.empty(batch, heads, 0, size, dtype=dtype, device=device) for _ in windows]
            for _ in range(2)
        )
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)

    def reserve(self, tokens: int, most: int) -> bool:
        """Room for so many tokens of a sequence, for ``most`` at most; whether there are new tensors. Must be
        requested before a token is added."""
        grown = False
        for i, window in enumerate(self.windows):
            old = self.keys[i].shape[2]
            if tokens <= old or old == window:
                continue
            places = min(-(-max(tokens, 2 * old) // BUCKET) * BUCKET, max(tokens, most), window or most)
            for side in (self.keys, self.values):
                wide = side[i].new_zeros((*side[i].shape[:2], places, side[i].shape[3]))
                wide[:, :, :old] = side[i]
                side[i] = wide
            grown = True
        return grown

    def held(self, layer: int, totals):
        """int64 (B, places): the position of the token at each place where sequences have so many tokens
        (int64 (B,)); negative where there is none."""
        places = torch.arange(self.keys[layer].shape[2], device=totals.device)[None]
        last, window = totals[:, None] - 1, self.windows[layer]
        if window is None:
            return torch.where(places <= last, places, -1)
        return last - (last - places) % window

    def fill(self, layer: int, keys, values, starts, totals) -> None:
        """Tokens (B, S, H_kv, D) at the positions from starts[b] to totals[b], exclusive; int64 (B,), starts
        None: from the first, of an empty cache. What is behind a sequence's own tokens is overwritten before
        it is read."""
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        count, places = keys.shape[2], self.keys[layer].shape[2]
        if starts is None and count <= places:
            self.keys[layer][:, :, :count] = keys
            self.values[layer][:, :, :count] = values
            return
        given = self.held(layer, totals)
        given = given if starts is None else given - starts[:, None]
        new = ((given >= 0) & (given < count))[:, None, :, None]
        at = given.clamp(0, count - 1)[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3])
        for side, rows in ((self.keys, keys), (self.values, values)):
            side[layer] = torch.where(new, rows.gather(2, at), side[layer])

    def next(self, append: bool) -> dict[int | None, torch.Tensor]:
        """{window: int32 (B,), the place of the token behind each sequence}; -1, which is none, unless it is
        to be added."""
        if not append:
            return dict.fromkeys(self.windows, torch.full_like(self.lengths, -1))
        return {w: self.lengths if w is None else self.lengths % w for w in dict.fromkeys(self.windows)}

    def seen(self, tokens) -> dict[int | None, torch.Tensor]:
        """{window: int32 (B,), the places that are read} where sequences have so many tokens."""
        return {
            window: tokens if window is None else tokens.clamp(max=window)
            for window in dict.fromkeys(self.windows)
        }
