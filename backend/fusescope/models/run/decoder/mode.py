"""The mode "fused" of a decoder: our layers over the cache of a comparison, the prompt packed where sequences
differ in length, on CUDA one graph for the prompt and one for a decoded token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models.describe.family import EIGHT_BIT, FP8_CACHE, needed
from fusescope.models.run import capture, masking
from fusescope.models.run.build import Model
from fusescope.models.run.decoder.fp8_cache import Fp8Cache
from fusescope.models.run.decoder.layers import Layers, Mark, Record, turned
from fusescope.models.run.generation import FixedGeneration
from fusescope.ops.attention import attention, attention_decode_step, attention_varlen, prepare
from fusescope.ops.layer import padding
from fusescope.ops.layer.rope_cache import rope_cache


def make(model: Model, inputs: Mapping[str, Any], quantised: str | None = None) -> Callable[[], Any]:
    """run() of the fused decoder on these inputs; see modes.make. run.quantised: as given, one of EIGHT_BIT
    or FP8_CACHE; run.kept: the Fp8Cache of the latter, as the last call left it."""
    decoder = FusedDecoder(model, inputs, quantised)
    run = _run(decoder, model, inputs)
    run.quantised, run.kept = quantised, decoder.fp8
    return run


def _run(decoder: FusedDecoder, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    cuda = model.device.startswith("cuda")
    if decoder.steps:
        return decoder.replayed() if cuda else decoder.generation()
    if not cuda:
        return capture.plain(decoder)
    return capture.captured(decoder, model.device)


def _check_window(model: Model, case: Mapping[str, Any]) -> None:
    tokens = needed(case)
    if tokens > (window := model.config.more.get("window") or tokens):
        raise Unsupported(
            f"the fused decoder has no sliding window, and that of {model.config.name} is {window} tokens; "
            f"the case has {tokens}: choose a shorter one, or call fusescope.generate, which has windows"
        )


class FusedDecoder:
    """The layers of a built model on the inputs of one case (build.inputs), whose FixedCache they fill; with
    FP8_CACHE an Fp8Cache besides, over which they decode."""

    def __init__(self, model: Model, inputs: Mapping[str, Any], quantised: str | None = None):
        self.inputs, self.case, self.cache = inputs, inputs["case"], inputs["cache"]
        weights = quantised if quantised in EIGHT_BIT else None
        self.layers = Layers(model.family, model.config, model.module, weights)
        self.device, self.phase = model.device, self.case["phase"]
        batch, seq = self.case["batch"], self.case["seq"]
        _check_window(model, self.case)
        uneven = any(n != seq for n in inputs["lengths"])
        self.packed = self.phase == "prefill" and uneven and inputs["mask"].name == "causal"
        if self.phase != "decode" and not self.packed:
            plan = masking.plan_of(inputs, self.device)
            self.plan = prepare(inputs["mask"], seq, seq, self.device) if plan is None else plan
        self.first = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.steps = FixedGeneration(model, inputs) if self.phase == "generate" else None
        if self.steps:
            self.counts, self.sizes = self.steps.places[:, 0], self.steps.sizes
        elif self.phase == "decode":
            counts = self.cache.counts
            if counts is None:
                counts = torch.full((batch,), seq, dtype=torch.int64, device=self.device)
            self.counts = counts.clone()
            self.sizes = (self.counts + 1).to(torch.int32)
        self.fp8 = None
        if quantised == FP8_CACHE:
            if self.phase == "prefill":
                raise Unsupported("an fp8 cache is for phases decode and generate: a prefill reads no cache")
            self.fp8 = Fp8Cache(self.cache)

    def __call__(self, record: Record | None = None, mark: Mark | None = None):
        """What build.call gives for the inputs, its operations launched one by one; zeros in padding that was
        removed. record, mark: as Layers have them."""
        with torch.no_grad():
            if self.phase == "decode":
                return self._token(self.inputs["input_ids"], record, mark)
            if self.phase == "prefill":
                return self._prompt(record, mark)
            return self.generation(record, mark)()

    def generation(self, record: Record | None = None, mark: Mark | None = None) -> Callable[[], Any]:
        """A generation, its operations launched one by one, as modes.make has it."""
        first, following = self._calls(record, mark)
        return self.steps.run(first, following, graph=False)

    def replayed(self) -> Callable[[], Any]:
        """A generation by two graphs: of the prompt with its logits, and of a token over the whole cache."""
        calls = (capture.captured(call, self.device, self.steps.restart) for call in self._calls())
        return self.steps.run(*calls, graph=True)

    def _calls(self, record: Record | None = None, mark: Mark | None = None):
        steps = self.steps

        def prompt():
            return self.layers.logits(self._prompt(record, mark)[:, -1:], record, mark)

        def token():
            return self._token(steps.tokens, record, mark)

        return steps.calls(prompt, token)

    def _prompt(self, record: Record | None, mark: Mark | None):
        """Hidden states (B, S, width) of the prompt, whose keys and values go into the cache."""
        ids, places = self.inputs["input_ids"], self.inputs["position_ids"]
        x = self.layers.embed(ids, places, record, mark)
        if self.packed:
            return self._packed(x, places.expand(ids.shape), record, mark)

        def attend(i, q, k, v, angles):
            caches = self.cache.keys[i], self.cache.values[i]
            q, *caches = rope_cache(q, k, v, angles, self.first, *caches, check=False)
            k, v = (t[:, :, : q.shape[1]] for t in caches)
            if self.fp8:
                self.fp8.fill(i, k, v)
            return attention(q.transpose(1, 2), k, v, self.plan, out_bshd=True).transpose(1, 2)

        return self.layers(x, places, attend, record, mark)

    def _packed(self, x, places, record: Record | None, mark: Mark | None):
        """The same on the tokens that are there, side by side as one row."""
        lengths, total = self.inputs["lengths_tensor"], sum(self.inputs["lengths"])
        batch, seq = places.shape
        x, offsets, _ = padding.pack(x, lengths, total=total)
        places = padding.pack(places[..., None], lengths, total=total)[0].view(1, total)

        def attend(i, q, k, v, angles):
            q, k = turned(q, k, angles)
            wide = [padding.unpack(t[0].flatten(1), offsets, batch, seq) for t in (k, v)]
            for kept, t in zip((self.cache.keys[i], self.cache.values[i]), wide):
                kept[:, :, :seq] = t.unflatten(-1, k.shape[2:]).transpose(1, 2)
            return attention_varlen(q[0], k[0], v[0], offsets, offsets, causal=True, check=False)[None]

        x = self.layers(x[None], places, attend, record, mark)
        return padding.unpack(x[0], offsets, batch, seq)

    def _token(self, ids, record: Record | None = None, mark: Mark | None = None):
        """Logits (B, 1, vocab) of one token (B, 1) of each sequence behind the counts that it has."""
        places = self.counts[:, None]

        def attend(i, q, k, v, angles):
            kept, how = self.cache, {"check": False, "settled": True}
            if self.fp8:
                kept, how = self.fp8, how | self.fp8.scales[i]
            caches = kept.keys[i], kept.values[i]
            return attention_decode_step(q, k, v, angles, self.counts, *caches, self.sizes, **how)

        x, found = self.layers.embed(ids, places, record, mark), None
        if not (record or mark or self.fp8):
            found = self.layers.step(x, places, self.cache.keys, self.cache.values, self.counts)
        if found is None:
            found = self.layers(x, places, attend, record, mark)
        return self.layers.logits(found, record, mark)
