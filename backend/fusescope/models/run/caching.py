"""What a causal language model of transformers caches per layer, found on the meta device by a forward over
a cache that takes notes."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from fusescope.models.run.kv_cache import FixedCache

_TOKENS = 3  # of the prompt


class Uncached(ValueError):
    """Why a model does not generate over a cache of ours, as the end of a sentence."""


class RecordedCache(FixedCache):
    """Holds no numbers. seen: (KV heads, key size, value size) by layer."""

    def __init__(self):
        super().__init__([], [], 0)
        self.seen: dict[int, tuple[int, int, int]] = {}

    def update(self, key_states, value_states, layer_idx: int, *args, **kwargs):
        self.seen[layer_idx] = key_states.shape[1], key_states.shape[3], value_states.shape[3]
        end = self.start + key_states.shape[2]
        return tuple(t.new_empty(*t.shape[:2], end, t.shape[3]) for t in (key_states, value_states))


def body(module: Any) -> Any:
    """What of a model with a head is before the head."""
    found = module.base_model
    return module.get_decoder() if found is module else found


def takes(module: Any) -> list[str]:
    """Which of the keywords that a generation uses a model's forward has."""
    names = inspect.signature(module.forward).parameters
    return [n for n in ("position_ids", "logits_to_keep") if n in names]


def shapes(module: Any, layers: int, usual: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """(KV heads, key size, value size) of each layer of a module on the meta device, zeros where a layer has
    no cache of its own. Uncached where it keeps anything besides, or nothing.

    usual: of every layer where the forward depends on numbers, which the meta device has not."""
    if "past_key_values" not in inspect.signature(module.forward).parameters:
        raise Uncached("its forward takes no past_key_values")
    if module._is_stateful:
        raise Uncached("its layers keep a state instead of keys and values")
    cache = RecordedCache()
    try:
        with torch.no_grad():
            _forward(module.eval(), cache)
    except AttributeError as error:
        if error.obj is not cache:
            raise
        raise Uncached(
            f"its layers keep something besides keys and values (the cache's {error.name})"
        ) from None
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
        return [usual] * layers
    if not cache.seen:
        raise Uncached("no layer of it gives keys and values to a cache")
    return [cache.seen.get(i, (0, 0, 0)) for i in range(layers)]


def _forward(module: Any, cache: RecordedCache) -> None:
    """A prompt, then a token; modules whose work depends on numbers are set to what depends on shapes."""
    for part in module.modules():
        kind = getattr(part, "rope_type", None)  # those that follow the length look at the positions
        if isinstance(kind, str):
            part.rope_type = "default"
        elif isinstance(kind, dict):
            part.rope_type = dict.fromkeys(kind, "default")
        if getattr(getattr(part, "config", None), "_experts_implementation", None) is not None:
            part.config._experts_implementation = "batched_mm"  # eager lists the experts that are used
    for cache.start, count in ((0, _TOKENS), (_TOKENS, 1)):
        given = {"input_ids": torch.zeros(1, count, dtype=torch.long, device="meta")}
        if "position_ids" in takes(module):
            given["position_ids"] = torch.arange(cache.start, cache.start + count, device="meta")[None]
        how = {"past_key_values": cache, "use_cache": True}
        logits = module(**given, **how).logits
        if logits.shape[:2] != (1, count):
            raise Uncached(f"it gives {logits.shape[1]} logits for {count} tokens")
        if not hasattr(body(module)(**given, **how), "last_hidden_state"):
            raise Uncached("its layers without the head give no last_hidden_state")
