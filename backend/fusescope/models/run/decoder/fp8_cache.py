"""The KV cache of the mode "fused-fp8-cache", and the float64 model over a cache that is rounded alike, which
the mode is checked against."""

from __future__ import annotations

from typing import Any

import torch

from fusescope.models.run.kv_cache import FixedCache
from fusescope.ops import fp8
from fusescope.ops.base import Tolerance


class Fp8Cache:
    """keys, values: per layer float8_e4m3fn of the shape of a FixedCache, with what that holds; scales: per
    layer what rope_cache and attention_decode take. All stay where they are, so that graphs follow them."""

    def __init__(self, cache: FixedCache):
        self.keys, self.values = (
            [torch.zeros(t.shape, dtype=torch.float8_e4m3fn, device=t.device) for t in side]
            for side in (cache.keys, cache.values)
        )
        names = "k_scale", "v_scale"
        self.scales = [{n: torch.ones(t.shape[1], device=t.device) for n in names} for t in self.keys]
        for i in range(len(self.keys) if cache.start else 0):
            held = (side[i][:, :, : cache.start] for side in (cache.keys, cache.values))
            self.fill(i, *(_there(t, cache.counts) for t in held))

    def fill(self, layer: int, keys, values) -> None:
        """The first tokens (B, H_kv, S, D), on which the scales are measured."""
        for side, rows, scale in zip((self.keys, self.values), (keys, values), self.scales[layer].values()):
            scale.copy_(fp8.roomy(fp8.largest(rows)))
            side[layer][:, :, : rows.shape[2]] = fp8.to_fp8(rows, scale)

    def part(self, first: int, last: int) -> Fp8Cache:
        """Sequences first … last−1, not copied."""
        found = object.__new__(Fp8Cache)
        found.keys, found.values = ([t[first:last] for t in side] for side in (self.keys, self.values))
        found.scales = self.scales
        return found


class RoundedCache(FixedCache):
    """A FixedCache in float64 that holds what an fp8 cache with these scales would.

    Where a value lies between two numbers of e4m3, which of them it becomes turns on the last bits that the
    model computes in its own dtype. So the run's own choice (``kept``) is taken, where it is the nearest
    number of a value that the tolerance allows; anything else in its place is not."""

    kept: Fp8Cache
    allowed: Tolerance

    @classmethod
    def over(cls, cache: FixedCache, kept: Fp8Cache, allowed: Tolerance) -> RoundedCache:
        found = cls(list(cache.keys), list(cache.values), cache.start, cache.counts)
        found.kept, found.allowed = kept, allowed
        for i, scales in enumerate(kept.scales):
            for side, scale in zip((found.keys, found.values), scales.values()):
                held = _there(side[i][:, :, : cache.start], cache.counts)
                side[i][:, :, : cache.start] = fp8.from_fp8(fp8.to_fp8(held, scale), scale, torch.float64)
        return found

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        """Of a prompt the states as they are, which its attention is computed over."""
        rounded = []
        sides = self.kept.keys[layer_idx], self.kept.values[layer_idx]
        for states, theirs, scale in zip(
            (key_states, value_states), sides, self.kept.scales[layer_idx].values()
        ):
            there = self._places(theirs.float(), states).double()
            rounded.append(_nearest(states, there, scale.double()[:, None, None], self.allowed))
        found = super().update(*rounded, layer_idx, *args, **kwargs)
        return found if self.start else (key_states, value_states)

    def _places(self, theirs, states):
        """What the run holds where these states go, (B, H_kv, S, D)."""
        if self.counts is not None:
            return theirs.gather(2, self.counts[:, None, None, None].expand_as(states))
        return theirs[:, :, self.start : self.start + states.shape[2]]


def _there(rows, counts):
    """(B, H_kv, S, D) with zeros from counts[b] on."""
    if counts is None:
        return rows
    places = torch.arange(rows.shape[2], device=rows.device)
    return rows * (places < counts[:, None])[:, None, :, None]


def _nearest(states, theirs, scale, allowed: Tolerance) -> Any:
    """The states rounded to e4m3 times the scale: to ``theirs`` (numbers without scale) where that is
    right."""
    exact = states / scale
    own = fp8.to_fp8(states, scale[:, 0, 0]).double()
    half = torch.exp2(torch.frexp(exact).exponent - 5.0).clamp(min=2.0**-10)  # of a last place of e4m3
    error = allowed.absolute * exact.square().mean((0, 2, 3), True).sqrt() + allowed.relative * exact.abs()
    right = (theirs - exact.clamp(-fp8.MOST, fp8.MOST)).abs() <= half + error
    return torch.where(right, theirs, own) * scale
