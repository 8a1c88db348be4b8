"""Generating with our decoder: the prompts, then a token of every sequence per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from fusescope.models.describe.family import Config
from fusescope.models.run import capture
from fusescope.models.run.decoder import prompt
from fusescope.models.run.decoder.cache import Cache
from fusescope.models.run.decoder.layers import Layers, turned
from fusescope.models.run.decoder.prompt import Prompt
from fusescope.ops.attention import attention, attention_decode_step
from fusescope.ops.layer.rope_cache import rope_cache

_UNSEEN = -1e30  # as a bias: its weight is exactly 0, and no kernel overflows


@dataclass
class Held:
    """What a generation leaves to the next one: the cache and which tokens it holds, (B, ≥ lengths)."""

    decoder: Decoder
    cache: Cache
    tokens: Any


class Decoder:
    """A loaded module's weights in our layers. windows: of each layer how many tokens a token sees, itself
    among them, None: all. Not for two generations at a time."""

    def __init__(self, family: ModuleType, config: Config, module: Any, windows: Sequence[int | None]):
        self.layers, self.config, self.windows = Layers(family, config, module), config, tuple(windows)
        weight = self.layers.weights["word"]
        self.dtype, self.device = weight.dtype, weight.device

    def generate(
        self,
        ids,
        keep,
        new: int,
        choose: Callable[[Any], Any],
        stops: list[int],
        pad: int | None,
        held: Held | None = None,
        fp8_cache: bool = False,
    ):
        """(int64 (B, S + up to new), Held): ids (B, S) with what follows; ends early where every sequence
        stopped.

        keep: bool (B, S), the tokens that are there; choose: logits (B, vocab) → int64 (B,); stops: tokens
        after which a sequence has only ``pad``. held: of an earlier call; the tokens that it holds from the
        first on are not computed again. fp8_cache: whether keys and values are kept in fp8.
        """
        with torch.no_grad():
            given = prompt.of(ids, keep, self.windows, new)
            cache, starts = self._cache(given, held, fp8_cache)
            most = given.longest + new - 1  # the last token is not fed
            cache.reserve(given.longest, most)
            logits, places = self._prompt(given, cache, starts)
            found, fed, step = [ids], [], None
            ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            ends = torch.tensor(stops, device=ids.device)
            for count in range(1, new + 1):
                tokens = choose(logits)
                if stops:
                    tokens = torch.where(ended, pad, tokens)
                    ended = ended | torch.isin(tokens, ends)
                found.append(tokens[:, None])
                if count == new or (stops and bool(ended.all())):
                    break
                if cache.reserve(given.longest + count, most) or step is None:
                    step = self._stepper(given, cache, tokens, places)
                logits = step(tokens, places)
                fed.append(tokens)
                cache.lengths += 1
                places = places + 1
            return torch.cat(found, 1), Held(self, cache, given.followed(fed, cache))

    def _cache(self, given: Prompt, held: Held | None, in_fp8: bool):
        """(the cache, int64 (B,) of the tokens of each prompt that it holds, None where there are none). A
        ring has forgotten what a shorter sequence would need: then all is computed again."""
        fits = held is not None and held.decoder is self and held.cache.windows == self.windows
        if (
            fits
            and held.cache.in_fp8 == in_fp8
            and given.slots is None
            and len(held.tokens) == len(given.tokens)
        ):
            starts = given.common(held.tokens, held.cache.lengths)
            cut = bool((starts < held.cache.lengths).any())
            least = min((w for w in held.cache.windows if w is not None), default=None)
            forgotten = cut and least is not None and int(held.cache.lengths.max()) > least
            if bool(starts.any()) and not forgotten:
                return held.cache, starts
        c = self.config
        shape = (len(given.tokens), c.kv_heads or c.heads, c.head_dim)
        rings = self.windows if given.slots is None else (None,) * c.layers
        return Cache(rings, shape, self.dtype, self.device, in_fp8), None

    def _prompt(self, given: Prompt, cache: Cache, starts):
        """(logits (B, vocab) behind the last token, position of the next token (B,)); fills the cache.

        A sequence that ends in padding goes on as in Hugging Face: from its last token, at position 0, which
        sees what is there but not itself.
        """
        tokens, places, last = given.behind(starts)
        seen = prompt.Seen(given, cache, starts, tokens.shape[1])

        def attend(i, q, k, v, angles):
            q, k = turned(q, k, angles)
            plan, keys, values = seen.keys(i, self.windows[i], k, v)
            cache.fill(i, k, v, starts, given.counts)
            q, k, v = (t.transpose(1, 2) for t in (q, keys, values))
            return attention(q, k, v, plan, out_bshd=True).transpose(1, 2)

        x = self.layers(self.layers.embed(tokens, places), places, attend)
        cache.lengths.copy_(given.counts)
        x = x[torch.arange(len(x), device=x.device), last]
        logits, follows = self.layers.logits(x).float(), given.counts
        if not bool(given.whole.all()):
            zero = torch.zeros_like(follows)
            padded = self._token(given, given.ends, zero, cache, append=False)
            logits = torch.where(given.whole[:, None], logits, padded)
            follows = torch.where(given.whole, follows, zero + 1)
        return logits, follows

    def _token(self, given: Prompt, tokens, places, cache: Cache, append: bool = True):
        """Logits (B, vocab) behind one token (B,) of every sequence."""
        sizes = cache.lengths + 1 if append else cache.lengths
        seen, at = cache.seen(sizes), cache.next(append)

        def attend(i, q, k, v, angles):
            how = dict(check=False, **cache.scales[i])
            caches, where = (cache.keys[i], cache.values[i]), at[cache.windows[i]]
            if given.slots is not None and self.windows[i] is not None:
                q, keys, _ = rope_cache(q, k, v, angles, places, *caches, places=where, **how)
                apart = given.within(sizes, keys.shape[2], self.windows[i], append)
                bias = torch.where(apart, 0.0, _UNSEEN)[:, None, None]
                return attention(q.transpose(1, 2), *cache.wide(i), bias=bias).transpose(1, 2)
            how |= dict(places=where, settled=True)
            return attention_decode_step(q, k, v, angles, places, *caches, seen[cache.windows[i]], **how)

        tokens, places = tokens[:, None], places[:, None]
        x, found = self.layers.embed(tokens, places), None
        if append and given.slots is None and not cache.in_fp8 and not any(self.windows):
            found = self.layers.step(x, places, cache.keys, cache.values, cache.lengths.long())
        if found is None:
            found = self.layers(x, places, attend)
        return self.layers.logits(found[:, 0]).float()

    def _stepper(self, given: Prompt, cache: Cache, tokens, places) -> Callable[[Any, Any], Any]:
        """step(tokens, places) → logits: on CUDA one graph for this size of the cache."""
        if self.device.type != "cuda":
            return lambda tokens, places: self._token(given, tokens, places, cache)
        now = tokens.clone(), places.clone()
        replay = capture.captured(lambda: self._token(given, *now, cache), str(self.device))

        def step(tokens, places):
            now[0].copy_(tokens)
            now[1].copy_(places)
            return replay()

        return step
