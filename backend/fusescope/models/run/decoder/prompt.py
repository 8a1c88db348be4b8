"""Prompts as the decoder takes them: the tokens that are there side by side, what of them a cache holds
already, and what each of them sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusescope import masks
from fusescope.models.run.decoder.cache import Cache
from fusescope.ops.attention import prepare


@dataclass
class Prompt:
    """tokens: int64 (B, longest), each sequence's own from its first place on; counts: int64 (B,), how many
    there are; ends: int64 (B,), the last token given, padding or not; whole: bool (B,), whether it is no
    padding. slots: int64 (B, longest), where in the given rows the tokens stood, and rows: how many there
    were; only where a window is shorter than the sequences and padding stands within or behind one: then it
    takes up room in the window, as in Hugging Face; else None."""

    tokens: Any
    counts: Any
    longest: int
    ends: Any
    whole: Any
    slots: Any
    rows: int

    def behind(self, starts):
        """(int64 (B, S): tokens from position starts[b] on, their positions, index of the last one (B,))."""
        if starts is None:
            places = torch.arange(self.longest, device=self.tokens.device)[None].expand_as(self.tokens)
            return self.tokens, places, self.counts - 1
        last = self.counts - starts - 1
        places = starts[:, None] + torch.arange(int(last.max()) + 1, device=starts.device)
        return self.tokens.gather(1, places.clamp(max=self.longest - 1)), places, last

    def common(self, tokens, lengths):
        """int64 (B,): how many of the first ``lengths`` of other tokens are those of the prompt, all but its
        last one at most, whose output is asked for."""
        width = min(tokens.shape[1], self.longest)
        place = torch.arange(width, device=tokens.device)
        there = place < torch.minimum(lengths.long(), self.counts - 1)[:, None]
        return ((tokens[:, :width] == self.tokens[:, :width]) & there).long().cumprod(1).sum(1)

    def followed(self, fed: list[Any], cache: Cache):
        """int64 (B, …): the tokens that the cache holds after it was fed these, each int64 (B,). Of a
        sequence that ended in padding only the prompt counts: what follows has other positions."""
        found = torch.nn.functional.pad(self.tokens, (0, len(fed)))
        if fed:
            at = self.counts[:, None] + torch.arange(len(fed), device=found.device)
            found.scatter_(1, at, torch.stack(fed, 1))
        cache.lengths = torch.where(self.whole, cache.lengths, self.counts.to(torch.int32))
        return found

    def within(self, sizes, places: int, window: int, appended: bool):
        """bool (B, places): which of the first sizes[b] tokens of a full cache the last given one, or the
        last of them where it was ``appended``, sees through a window, by slots."""
        place = torch.arange(places, device=sizes.device)[None]
        new = place - self.counts[:, None]  # of the tokens behind the prompt: how many before it
        padded = torch.nn.functional.pad(self.slots, (0, max(0, places - self.slots.shape[1])))[:, :places]
        slots = torch.where(new < 0, padded, self.rows + new)
        own = self.rows - 1 + (sizes.long() - self.counts if appended else torch.zeros_like(self.counts))
        return (place < sizes[:, None]) & (own[:, None] - slots < window)


def of(ids, keep, windows: Sequence[int | None], new: int) -> Prompt:
    """ids, keep: int64 and bool (B, S); new: tokens that follow at most."""
    counts = keep.sum(1)
    longest = int(counts.max())
    order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)[:, :longest]
    short = any(w is not None and w < ids.shape[1] + new for w in windows)
    apart = short and not bool((keep[:, 1:] >= keep[:, :-1]).all())
    slots = order if apart else None
    return Prompt(ids.gather(1, order), counts, longest, ids[:, -1], keep[:, -1], slots, ids.shape[1])


class Seen:
    """What the tokens of a prompt see: those before them in it and in the cache, within a window. starts: as
    Cache.fill takes them; count: tokens given of each sequence."""

    def __init__(self, given: Prompt, cache: Cache, starts, count: int):
        self.given, self.cache, self.starts, self.count = given, cache, starts, count
        self._plans: dict[int | None, Any] = {}

    def keys(self, layer: int, window: int | None, k, v):
        """(plan, keys, values (B, keys, H_kv, D)) of a layer; k, v: of the prompt, not yet in the cache."""
        if window not in self._plans:
            self._plans[window] = self._plan(layer, window)
        if self.starts is not None:
            before = (side.transpose(1, 2) for side in self.cache.wide(layer))
            k, v = (torch.cat(pair, 1) for pair in zip(before, (k, v)))
        return self._plans[window], k, v

    def _plan(self, layer: int, window: int | None):
        device = self.given.tokens.device
        if self.starts is None and (self.given.slots is None or window is None):
            if window is None or window >= self.count:
                mask = masks.load("causal")
            else:
                mask = masks.load("sliding_window", left=window - 1, right=0)
            return prepare(mask, self.count, self.count, device)
        new = torch.arange(self.count, device=device)[None].expand(len(self.given.tokens), -1)
        if self.starts is None:
            kept = new[:, None] <= new[..., None]
            slots = self.given.slots
            kept = kept & (slots[..., None] - slots[:, None] < window)
            return prepare(kept[:, None], self.count, self.count, device)
        own = self.starts[:, None] + new
        there = torch.cat((self.cache.held(layer, self.starts), own), 1)[:, None]
        kept = (there >= 0) & (there <= own[..., None])
        if window is not None:
            kept = kept & (own[..., None] - there < window)
        return prepare(kept[:, None], self.count, there.shape[-1], device)
