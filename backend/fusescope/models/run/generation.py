"""Phase generate: the prompt, then one token after the other over a cache that grows in place.

The tokens that a step is fed are fixed (``forced``), so that every execution mode does the same work and its
logits can be compared with those in float64; the token that it would have chosen is computed all the same.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

_RUNS = 5  # generations from which single steps are timed


def logits(module, inputs: Mapping[str, Any], mark: Callable[[], None] = lambda: None):
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


def timed(run: Callable[[Callable[[], None]], Any], device: str) -> dict[str, list[float]]:
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
