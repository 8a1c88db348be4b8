"""A KV cache of fixed place and length: what every mode of a comparison prefills or decodes over, capturable
and repeatable.

Hugging Face's own caches move on with every call; a measured call must do the same work each time. This one
always holds ``start`` tokens and takes the next ones at the same place. transformers asks a cache for no more
than the methods below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class FixedCache:
    """keys, values: per layer (B, H_kv, end, D), of which the first ``start`` are there before a call.

    counts: int64 (B,) where sequences differ: how many tokens each has, at most ``start``; the next one of
    each is then put right behind them, and what is further on is for nobody to see.
    """

    keys: list[Any]
    values: list[Any]
    start: int
    counts: Any = None

    is_compileable = False

    @classmethod
    def of(cls, model, case, generator=None, counts=None) -> FixedCache:
        """For a case: empty to prefill (generator None), or holding seq random tokens (counts: so many of
        each sequence) to decode one more."""
        config, dtype = model.config, getattr(torch, model.dtype)
        start = case["seq"] if generator is not None else 0
        end = case["seq"] + (case["new"] if case.get("phase") == "generate" else 1 if start else 0)

        def one(heads: int, size: int):
            shape = case["batch"], heads, end, size
            if generator is None:
                return torch.zeros(shape, dtype=dtype, device=model.device)
            return torch.randn(shape, generator=generator).to(device=model.device, dtype=dtype)

        keys = [one(heads, size) for heads, size, _ in config.cache]
        return cls(keys, [one(heads, size) for heads, _, size in config.cache], start, counts)

    @property
    def size(self) -> int:
        """Elements of all keys and values."""
        return sum(t.numel() for t in (*self.keys, *self.values))

    def to(self, dtype) -> FixedCache:
        """A copy in another precision."""
        return self.part(0, None, dtype)

    def part(self, first: int, last: int | None, dtype) -> FixedCache:
        """A copy of sequences first … last−1 in another precision."""
        keys, values = (
            [t[first:last].to(dtype, copy=True) for t in side] for side in (self.keys, self.values)
        )
        return FixedCache(keys, values, self.start, None if self.counts is None else self.counts[first:last])

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * len(self.keys)

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        end = self.start + key_states.shape[2]
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        if self.counts is not None:
            at = self.counts[:, None, None, None].expand_as(key_states)
            keys.scatter_(2, at, key_states)
            values.scatter_(2, at, value_states)
            return keys, values
        keys[:, :, self.start : end].copy_(key_states)
        values[:, :, self.start : end].copy_(value_states)
        return keys[:, :, :end], values[:, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.start

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.start

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.start + query_length, 0


class StepCache(FixedCache):
    """The same keys and values to a step of fixed shapes: ``start`` is int64 (B, 1) on the device, the same
    number for every sequence. The next token goes there; what is further on the mask of the model leaves
    out, as with Hugging Face's StaticCache."""

    is_compileable = True

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        keys, values, at = self.keys[layer_idx], self.values[layer_idx], self.start[0]
        keys.index_copy_(2, at, key_states)
        values.index_copy_(2, at, value_states)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0):
        return self.start[0, 0]

    def get_query_offset(self, layer_idx: int = 0):
        return self.start[0, 0]

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.keys[layer_idx].shape[2], 0
