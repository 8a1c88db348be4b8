"""Our attention as transformers calls it."""

from __future__ import annotations

from dataclasses import dataclass

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import decoding, model_masks, packed, scope
from fusescope.ops.attention.dispatch import listed

# Keywords that change what is computed; others (position_ids, sliding_window, which the mask has) do not.
_REFUSED = {
    "indices": "keys chosen by an indexer",
    "block_indices": "blocks of keys chosen by an indexer",
    "cache": "a paged cache",
    "output_attentions": "attention weights as an output",
}
# int32 lengths of decoding, by (batch, keys, device); a dict, because torch.compile traces the look-up
_counts: dict = {}
_MOST_COUNTS = 256


@dataclass
class Calls:
    """How often our attention ran in this process: the proof that a model uses it."""

    count: int = 0


calls = Calls()


def forward(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    position_bias=None,
    **kwargs,
):
    """Hugging Face's attention function: query (B, H, S, D), key and value (B, H_kv, T, D) -> (out (B, S, H,
    D) contiguous, None).

    Soft-capped scores (softcap) and attention sinks (s_aux, sinks) are computed. Raises Unsupported for a
    position_bias together with lengths in the place of a plan, for indexed keys, paged caches, packed
    sequences that the mask does not have, attention weights and dropout, and whatever ``attention`` and
    ``attention_decode`` refuse.
    """
    import torch

    from fusescope.ops.attention import attention

    if not torch.compiler.is_compiling():
        calls.count += 1
        if (running := scope.current()) is not None:
            running.calls += 1
    _refuse(module, dropout, kwargs)
    scored = _scored(kwargs)
    if (cu_seq_lens := kwargs.get("cu_seq_lens_q")) is not None:
        packed.agree(module, cu_seq_lens, attention_mask, query)
    queries, keys = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and queries > 1 and attention_mask is None
    plan = model_masks.held() if getattr(module, "is_cross_attention", False) is not True else None
    if isinstance(plan, torch.Tensor):
        given = query, key, value, plan, attention_mask, position_bias
        return decoding.by_lengths(module, *given, scale=scaling, **scored).transpose(1, 2), None
    packs = packed.of(attention_mask) if plan is None and position_bias is None and not scored else None
    if packs is not None and (out := packed.attend(query, key, value, packs, scaling)) is not None:
        return out, None
    bias = position_bias
    if plan is not None and (plan.seq_q, plan.seq_k) != (queries, keys):
        plan = None  # another attention of the same forward (a decoder over its encoder): it has no mask then
        causal = False
    elif plan is None and causal and keys > queries:  # an empty static cache: only the first keys are there
        key, value, keys = key[:, :, :queries], value[:, :, :queries], queries
        bias = None if bias is None else bias[..., :queries]
    if queries == 1 and plan is None and bias is None:
        given = query, key, value, attention_mask, lambda: _every_key(torch, query, keys)
        if (out := decoding.one_query(*given, scale=scaling, **scored)) is not None:
            return out.transpose(1, 2), None
    if attention_mask is not None and attention_mask.shape[-1] > keys:
        attention_mask = attention_mask[..., :keys]
    made = model_masks.tile_lists(attention_mask, queries, keys) if plan is None else None
    if plan is None and made is None:
        plan, bias = model_masks.plan_and_bias(attention_mask, causal, query, keys, bias)
    if bias is not None and bias.dtype not in (query.dtype, torch.float32):
        bias = bias.float()
    how = dict(bias=bias, scale=scaling, out_bshd=True, **scored)
    if made is not None:
        return listed.attend(query, key, value, made, attention_mask.shape, **how).transpose(1, 2), None
    return attention(query, key, value, plan, **how).transpose(1, 2), None


def _scored(given) -> dict:
    """The soft-cap and the sinks among these keywords, as ``attention`` takes them; empty where there are
    none."""
    sinks = given.get("s_aux") if given.get("sinks") is None else given["sinks"]
    found = {"softcap": given.get("softcap"), "sinks": sinks}
    return {name: value for name, value in found.items() if value is not None}


def _refuse(module, dropout, given) -> None:
    for name, what in _REFUSED.items():
        if (value := given.get(name)) is not None and value is not False:
            raise Unsupported(
                f'{type(module).__name__} asks for {what} ({name}), which attn_implementation="fusescope" '
                'does not support; use "eager"'
            )
    if dropout and module.training:
        raise Unsupported(f"attn_implementation fusescope is forward only, without dropout; got {dropout}")


def _every_key(torch, query, keys: int):
    """int32 (B,) that says that each sequence has all keys."""
    shape = (query.shape[0], keys, query.device)
    lengths = _counts.get(shape)
    if lengths is None:
        lengths = torch.full(shape[:1], keys, dtype=torch.int32, device=query.device)
        if not torch.compiler.is_compiling() and not model_masks.capturing(query.device):
            if len(_counts) >= _MOST_COUNTS:
                _counts.clear()
            _counts[shape] = lengths
    return lengths
