"""Phase generate: the prompt, then one token after the other, over a cache that grows in place, or, in modes
that capture or compile, over the whole of a cache whose end is masked.

The tokens that a step is fed are fixed (``forced``), so that every execution mode does the same work and its
logits can be compared with those in float64; the token that it would have chosen is computed all the same.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.models.run import capture
from fusescope.models.run.kv_cache import FixedCache, StepCache

Mark = Callable[[], None]
_RUNS = 5  # generations from which single steps are timed


def logits(module, inputs: Mapping[str, Any], mark: Mark = lambda: None):
    """(B, new, vocab): of every token that is generated, by a Hugging Face module with a head; ``mark`` is
    called when a token is known."""
    cache, forced = inputs["cache"], inputs["forced"]
    seq, new, device = inputs["case"]["seq"], inputs["case"]["new"], forced.device
    places = torch.arange(seq + new, device=device)[None]
    cache.start = 0
    found = [_step(module, inputs, inputs["input_ids"], places[:, :seq])]
    mark()
    for step in range(new - 1):
        cache.start = seq + step
        here = places[:, seq + step : seq + step + 1]
        found.append(_step(module, inputs, forced[:, step : step + 1], here))
        mark()
    return torch.cat(found, 1)


def _step(module, inputs: Mapping[str, Any], ids, places):
    own = {"position_ids": places} if "position_ids" in inputs else {}
    how = inputs["settings"] | own
    out = module(input_ids=ids, past_key_values=inputs["cache"], **how).logits[:, -1:]
    out.argmax(-1)  # what a greedy choice takes
    return out


class FixedGeneration:
    """The two calls of fixed shapes that make a generation: of the prompt, and of one token over the whole
    cache, which moves on on the device.

    prompt, token: the inputs of the two, as build.call takes them. places: int64 (B, 1), where the token goes
    that is fed next, and sizes: int32 (B,), how many tokens each sequence then has; tokens: int64 (B, 1), the
    one. found: (B, new, vocab), the logits; chosen: int64 (B, new), the greedy choice of each.
    """

    def __init__(self, model, inputs: Mapping[str, Any], masks: str | None = "sizes"):
        """masks: what the mode attends by: "sizes", "additive", or None where transformers makes its own."""
        case, self.forced, caches = inputs["case"], inputs["forced"], inputs["cache"]
        (batch, self.new), self.seq, device = self.forced.shape, case["seq"], model.device
        dtype, end = getattr(torch, model.dtype), self.seq + self.new
        self.places = torch.empty((batch, 1), dtype=torch.int64, device=device)
        self.sizes = torch.empty((batch,), dtype=torch.int32, device=device)
        self.tokens = self.forced[:, :1].clone()
        self.found = torch.empty((batch, self.new, model.config.vocab), dtype=dtype, device=device)
        self.chosen = torch.empty((batch, self.new), dtype=torch.int64, device=device)
        # rows begin at multiples of 16, or the efficient attention would copy the mask in every layer
        wide = torch.empty((1, 1, 1, -(-end // 16) * 16), dtype=dtype, device=device)
        self.additive = wide[..., :end] if masks == "additive" else None
        self.restart()
        self.prompt = {name: value for name, value in inputs.items() if name != "forced"}
        self.prompt["cache"] = FixedCache(caches.keys, caches.values, 0)
        self.token = self.prompt | {
            "case": case | {"phase": "decode"},
            "input_ids": self.tokens,
            "cache": StepCache(caches.keys, caches.values, self.places),
            "additive": self.additive,
        }
        if "position_ids" in inputs:
            self.token["position_ids"] = self.places
        if masks == "sizes":
            self.token["sizes"] = self.sizes

    def restart(self) -> None:
        """Back to the end of the prompt."""
        self.places.fill_(self.seq)
        self.sizes.fill_(self.seq + 1)
        if self.additive is not None:
            self.additive.fill_(torch.finfo(self.additive.dtype).min)
            self.additive[..., : self.seq + 1].zero_()

    def first(self, call: Callable[[], Any]) -> None:
        """call: logits (B, 1 or S, vocab) of ``prompt``."""
        self.restart()
        self._keep(call()[:, -1:])

    def next(self, call: Callable[[], Any]) -> None:
        """call: logits (B, 1, vocab) of ``token``."""
        logits = call()
        self.places.add_(1)
        self.sizes.add_(1)
        if self.additive is not None:
            self.additive.index_fill_(3, self.places[0], 0.0)
        self._keep(logits)

    def calls(
        self, prompt: Callable[[], Any], token: Callable[[], Any]
    ) -> tuple[Callable[[], None], Callable[[], None]]:
        """(what makes the first token, what makes a further one) of the calls of ``prompt`` and ``token``."""
        return lambda: self.first(prompt), lambda: self.next(token)

    def _keep(self, logits) -> None:
        number = self.places[0] - self.seq
        self.found.index_copy_(1, number, logits)
        self.chosen.index_copy_(1, number, logits.argmax(-1))
        self.tokens.copy_(self.forced.index_select(1, number))

    def run(self, first: Callable[[], Any], following: Callable[[], Any], graph: bool) -> Callable[[], Any]:
        """run() of a whole generation, as modes.make has it, by what launches ``first`` and ``next``;
        run.marked(mark): the same, see ``logits``. A graph's result is overwritten by its next call."""

        def marked(mark: Mark = lambda: None):
            with torch.no_grad():
                first()
                mark()
                for _ in range(self.new - 1):
                    following()
                    mark()
                return self.found if graph else self.found.clone()

        run = capture.plain(marked)
        run.graph, run.marked = graph, marked
        if graph:
            run.replay, run.result = run, lambda: self.found
        return run

    def tensors(self) -> list[Any]:
        """All that the two calls read and write in place, but for the weights."""
        own = [self.places, self.sizes, self.found, self.chosen, self.forced, self.additive]
        given = [*self.prompt.values(), *self.token.values()]
        cache = self.prompt["cache"]
        return [t for t in (*own, *given, *cache.keys, *cache.values) if isinstance(t, torch.Tensor)]


def timed(run: Callable[[Mark], Any], device: str) -> dict[str, list[float]]:
    """{"first_ms", "token_ms"}: the time to the first token of each of some generations, and between tokens;
    run(mark): one of them."""
    cuda = device.startswith("cuda")
    found: dict[str, list[float]] = {"first_ms": [], "token_ms": []}
    for _ in range(_RUNS):
        moments: list[float] = []

        def mark(moments=moments) -> None:
            if cuda:
                torch.cuda.synchronize(device)
            moments.append(time.perf_counter())

        mark()
        run(mark)
        steps = [(b - a) * 1e3 for a, b in itertools.pairwise(moments)]
        found["first_ms"].append(steps[0])
        found["token_ms"] += steps[1:]
    return found
