"""Generating with our decoder: the prompts, then a token of every sequence per step."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from fusescope import masks
from fusescope.models.describe.family import Config
from fusescope.models.run import capture
from fusescope.models.run.decoder.cache import Cache
from fusescope.models.run.decoder.layers import Layers
from fusescope.ops.attention import attention, attention_decode


class Decoder:
    """A loaded module's weights in our layers. Not for two generations at a time."""

    def __init__(self, family: ModuleType, config: Config, module: Any):
        self.layers, self.config = Layers(family, config, module), config
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
    ):
        """int64 (B, S + up to new): ids (B, S) with what follows; ends early where every sequence stopped.

        keep: bool (B, S), the tokens that are there; choose: logits (B, vocab) → int64 (B,); stops: tokens
        after which a sequence has only ``pad``.
        """
        with torch.no_grad():
            logits, cache, places = self._prompt(ids, keep, new)
            found, ended = [ids], torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
            ends = torch.tensor(stops, device=ids.device)
            longest = int(cache.lengths.max())
            step = None
            for count in range(1, new + 1):
                tokens = choose(logits)
                if stops:
                    tokens = torch.where(ended, pad, tokens)
                    ended = ended | torch.isin(tokens, ends)
                found.append(tokens[:, None])
                if count == new or (stops and bool(ended.all())):
                    break
                if cache.reserve(longest + count) or step is None:
                    step = self._stepper(cache, tokens, places)
                logits = step(tokens, places)
                cache.lengths += 1
                places = places + 1
            return torch.cat(found, 1)

    def _prompt(self, ids, keep, new: int):
        """(logits (B, vocab) behind the last token, the filled cache, position of the next token (B,)).

        Tokens that are there are moved side by side, so that no key is masked. A sequence that ends in
        padding goes on as in Hugging Face: from its last token, at position 0, which sees what is there but
        not itself.
        """
        c, counts = self.config, keep.sum(1)
        longest = int(counts.max())
        order = torch.argsort((~keep).to(torch.uint8), dim=1, stable=True)[:, :longest]
        places = torch.arange(longest, device=ids.device)[None].expand(len(ids), -1)
        shape = (len(ids), c.kv_heads or c.heads, c.head_dim)
        cache = Cache(c.layers, shape, self.dtype, self.device, longest + new, longest)
        causal = masks.load("causal")

        def attend(i, q, k, v):
            cache.fill(i, k, v)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            return attention(q, k, v, causal, out_bshd=True).transpose(1, 2)

        x = self.layers(self.layers.embed(ids.gather(1, order), places), places, attend)
        cache.lengths += counts.to(torch.int32)
        last = x[torch.arange(len(ids), device=ids.device), counts - 1]
        logits, follows = self.layers.logits(last).float(), counts
        if not bool(keep[:, -1].all()):
            zero = torch.zeros_like(counts)
            padded = self._token(ids[:, -1], zero, cache, append=False)
            logits = torch.where(keep[:, -1:], logits, padded)
            follows = torch.where(keep[:, -1], counts, zero + 1)
        return logits, cache, follows

    def _token(self, tokens, places, cache: Cache, append: bool = True):
        """Logits (B, vocab) behind one token (B,) of every sequence."""
        lengths = cache.lengths + 1 if append else cache.lengths

        def attend(i, q, k, v):
            if append:
                cache.append(i, k, v)
            keys, values = cache.keys[i], cache.values[i]
            return attention_decode(q.transpose(1, 2), keys, values, lengths, check=False).transpose(1, 2)

        tokens, places = tokens[:, None], places[:, None]
        x = self.layers(self.layers.embed(tokens, places), places, attend)
        return self.layers.logits(x[:, 0]).float()

    def _stepper(self, cache: Cache, tokens, places) -> Callable[[Any, Any], Any]:
        """step(tokens, places) → logits: on CUDA one graph for this size of the cache."""
        if self.device.type != "cuda":
            return lambda tokens, places: self._token(tokens, places, cache)
        given = tokens.clone(), places.clone()
        replay = capture.captured(lambda: self._token(*given, cache), str(self.device))

        def step(tokens, places):
            given[0].copy_(tokens)
            given[1].copy_(places)
            return replay()

        return step
