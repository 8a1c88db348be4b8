"""A KV cache of our own: static tensors, the tokens of each sequence side by side from its first place on; a
layer with a sliding window is a ring that holds the last tokens alone. In the model's dtype, or in fp8 with a
scale per layer and KV head."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusescope.ops import fp8

BUCKET = 256
"""Places that a cache grows by at least; a CUDA graph holds for one size."""


class Cache:
    """Per layer keys and values (B, H_kv, places, D); lengths: int32 (B,), the tokens of each sequence.

    windows: of each layer how many tokens a token sees, itself among them; None: all. The token at position p
    is at place p, in a layer with a window at place p modulo that, because the order of keys does not matter
    to attention: what a step reads are the first ``seen`` places, all of them once the ring is full.

    in_fp8: keys and values of float8_e4m3fn; scales: of each layer what rope_cache and attention_decode take
    (fp8.roomy of the largest size in the prompts of the first ``fill``), empty without fp8."""

    def __init__(
        self, windows: Sequence[int | None], shape: tuple[int, int, int], dtype, device, in_fp8: bool = False
    ):
        batch, heads, size = shape
        self.windows, self.in_fp8, self.dtype = tuple(windows), in_fp8, dtype
        kept = torch.float8_e4m3fn if in_fp8 else dtype
        self.keys, self.values = (
            [torch.empty(batch, heads, 0, size, dtype=kept, device=device) for _ in windows] for _ in range(2)
        )
        self.scales: list[dict[str, torch.Tensor]] = [{} for _ in windows]
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
        if self.in_fp8:
            keys, values = self._quantised(layer, keys, values, starts, totals)
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
            rows, old = (t.view(torch.uint8) if self.in_fp8 else t for t in (rows, side[layer]))
            side[layer] = torch.where(new, rows.gather(2, at), old).view(side[layer].dtype)

    def _quantised(self, layer: int, keys, values, starts, totals):
        """Keys and values (B, H_kv, S, D) in fp8; the scales are measured where nothing came before, on the
        tokens that are there."""
        if starts is None:
            there = torch.arange(keys.shape[2], device=totals.device) < totals[:, None]
            found = (fp8.largest(t * there[:, None, :, None]) for t in (keys, values))
            self.scales[layer] = dict(zip(("k_scale", "v_scale"), map(fp8.roomy, found)))
        return (fp8.to_fp8(t, scale) for t, scale in zip((keys, values), self.scales[layer].values()))

    def wide(self, layer: int):
        """Keys and values of a layer in the model's dtype, of fp8 a copy."""
        sides = self.keys[layer], self.values[layer]
        if not self.in_fp8:
            return sides
        scales = self.scales[layer].values()
        return tuple(fp8.from_fp8(t, scale, self.dtype) for t, scale in zip(sides, scales))

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
