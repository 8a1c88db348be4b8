"""generate(): tokens after a prompt by our decoder, from a loaded Hugging Face model of the GPT-2 or Llama
family."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter, check_int
from fusescope.models.by_config import rope
from fusescope.models.describe import catalog, settings

_decoders: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # (state of the weights, Decoder) by model
_NEUTRAL = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "guidance_scale": 1.0,
    "watermarking_config": None,
    "stop_strings": None,
    "max_time": None,
    "token_healing": False,
    "top_h": None,
    "penalty_alpha": 0.0,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
}
"""What a model's generation_config may say besides the tokens that end and pad: the value that changes
nothing."""


def generate(
    model,
    input_ids,
    attention_mask=None,
    *,
    max_new_tokens: int,
    do_sample: bool = False,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    eos_token_id: int | list[int] | None = None,
    cache: KVCache | None = None,
    cache_dtype: str | None = None,
):
    """LongTensor (B, prompt + new): the prompts with at most max_new_tokens after each, as the model's own
    ``generate`` returns them, fewer where every sequence has ended.

    model: a loaded GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or
    Qwen3ForCausalLM in float32, float16 or bfloat16, on the CPU or a CUDA device; its weights are packed at
    the first call and kept with it (a copy), again where they have changed. input_ids: int64 (B, prompt) on
    its device; attention_mask: the same shape, 1 where a token is there (None: everywhere), padding left or
    right. A prompt that ends in padding goes on as in transformers: from the padding, and is refused where
    that sees no token through a sliding window.
    do_sample: draw by ``seed`` from softmax(logits / temperature) (1.0 where None) among the top_k likeliest
    (None: all) and of those the fewest with a share of top_p (None: all); else the likeliest token. What the
    model's generation_config says of these four is not taken.
    eos_token_id: what ends a sequence, None for what the model's generation_config says; an ended sequence
    goes on with its pad_token_id, else the first eos_token_id.
    cache: a KVCache; the tokens of an earlier call with it that these prompts begin with are not computed
    again, which changes no result but by rounding.
    cache_dtype: what keys and values are kept in, None for the model's dtype. "fp8": e4m3, half the bytes
    that a step reads of a 16-bit cache, with a float32 scale per layer and KV head: the power of 2 by which
    the largest number, 448, is two to four times the largest size in the prompts. The prompts are computed in
    the model's dtype; later keys and values beyond the room saturate. Each kept value is rounded to 4 bits,
    so tokens may differ from those of a cache in the model's dtype. On a GPU for heads of up to 128 in
    float16 or bfloat16 where v4_cluster runs (compute capability 9.0).

    Raises TypeError and ValueError for arguments that break a rule, and core.errors.Unsupported by name for
    models, settings of them and head sizes that our decoder does not have, and for models with hooks, or
    other parameters than their class has.
    """
    import torch

    from fusescope.models.run.decoder.sampling import chooser

    if cache_dtype not in (None, "fp8"):
        raise ValueError(f'cache_dtype is None, for the dtype of the model, or "fp8", not {cache_dtype!r}')
    if cache is not None and not isinstance(cache, KVCache):
        raise TypeError(f"cache is a fusescope.KVCache or None, not {type(cache).__name__}")
    family = _family(model)
    keep = _prompt(torch, model, input_ids, attention_mask)
    check_int("max_new_tokens", max_new_tokens, 1)
    _check_sampling(do_sample, temperature, top_k, top_p)
    seed = check_int("seed", seed, 0)
    stops, pad = _ends(model, eos_token_id)
    config = _sizes(family, model, input_ids.shape[1] + max_new_tokens)
    _check_last(torch, keep, _windows(model, config.layers))
    longest = int(keep.sum(1).max()) + max_new_tokens
    if config.positions and family.SETTINGS.model_type == "gpt2" and longest > config.positions:
        raise ValueError(
            f"{type(model).__name__} has {config.positions} positions; a prompt of "
            f"{longest - max_new_tokens} tokens and max_new_tokens {max_new_tokens} need {longest}"
        )
    chosen = chooser(do_sample, temperature or 1.0, top_k, top_p, seed, input_ids.device)
    decoder = _decoder(family, config, model)
    held = None if cache is None else cache.held
    how = stops, pad, held, cache_dtype == "fp8"
    found, held = decoder.generate(input_ids, keep, max_new_tokens, chosen, *how)
    if cache is not None:
        cache.held = held
    return found


class KVCache:
    """Keys and values that ``generate`` keeps from one call to the next, for a conversation that grows: empty
    at first, then of the last call's tokens but the very last. It is of no use to another model, batch or
    changed weights, for which all is computed again; empty it by a new one where weights were changed through
    ``.data``, which only those that are packed show. Not for two calls at a time.

    held: what it holds, None while empty."""

    def __init__(self) -> None:
        self.held: Any = None


def _family(model):
    families = {}
    for name in catalog.names():
        module = catalog.family(name)
        if module.KIND == "decoder":
            families[module.SETTINGS.model_type] = module
    kind = getattr(getattr(model, "config", None), "model_type", None)
    known = {f.SETTINGS.module for f in families.values()}
    if kind not in families or type(model).__name__ != families[kind].SETTINGS.module:
        raise Unsupported(
            f"fusescope.generate runs {', '.join(sorted(known))}, not {type(model).__name__}; use its own "
            "generate"
        )
    return families[kind]


def _sizes(family, model, tokens: int):
    """The family's sizes from the model's configuration; Unsupported for what its tables do not say."""
    head = model.get_output_embeddings()
    data: Mapping[str, Any] = {
        **model.config.to_dict(),
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": head.weight is model.get_input_embeddings().weight,
    }
    if rope.kind(data) == "dynamic" and tokens <= (data.get("max_position_embeddings") or 0):
        data = {**data, "rope_parameters": {"rope_theta": rope.theta(data)}, "rope_scaling": None}
    try:
        return settings.sizes(family, data)
    except ValueError as error:
        raise Unsupported(
            f"fusescope.generate does not run this {type(model).__name__}: {error}; use its own generate"
        ) from None


def _windows(model, layers: int) -> tuple[int | None, ...]:
    """Of each layer how many tokens a token sees, itself among them; None: all before it."""
    window = getattr(model.config, "sliding_window", None)
    kinds = getattr(model.config, "layer_types", None) or ["sliding_attention"] * layers
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _prompt(torch, model, ids, mask):
    """bool (B, prompt): the tokens that are there."""
    weight = model.get_input_embeddings().weight
    if not isinstance(ids, torch.Tensor) or ids.dtype != torch.int64:
        raise TypeError(f"input_ids is a tensor of int64, not {getattr(ids, 'dtype', type(ids).__name__)}")
    if ids.dim() != 2 or 0 in ids.shape:
        raise ValueError(f"input_ids is (B, prompt) with a token at least; its shape is {tuple(ids.shape)}")
    if ids.device != weight.device:
        raise ValueError(f"input_ids is on {ids.device}, the model on {weight.device}: both on one device")
    least, largest = int(ids.min()), int(ids.max())
    if least < 0 or largest >= weight.shape[0]:
        raise ValueError(f"token ids lie from 0 to {weight.shape[0] - 1}; input_ids has {least} to {largest}")
    _check_hooks(model)
    if model.training:
        raise Unsupported("fusescope.generate runs models in evaluation mode, without dropout: model.eval()")
    if {p.dtype for p in model.parameters()} - {weight.dtype} or weight.dtype not in (
        *(torch.float32, torch.float16),
        torch.bfloat16,
    ):
        raise Unsupported("fusescope.generate runs weights of one dtype: float32, float16 or bfloat16")
    if mask is None:
        return torch.ones_like(ids, dtype=torch.bool)
    if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape or mask.device != ids.device:
        raise ValueError(f"attention_mask has the shape of input_ids, {tuple(ids.shape)}, and its device")
    keep = mask.bool()
    if not torch.equal(keep.to(mask.dtype), mask):
        raise ValueError("attention_mask is 1 where a token is there and 0 where it is padding")
    if not bool(keep.any(1).all()):
        raise ValueError("attention_mask leaves a sequence without any token; each has at least one")
    return keep


def _check_hooks(model) -> None:
    """Hooks may change what a layer gives, and our decoder does not call them; those that transformers,
    accelerate and we ourselves set only look on, or move tensors."""
    for name, part in model.named_modules():
        for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values()):
            where = getattr(hook, "__module__", None) or type(hook).__module__
            if where.partition(".")[0] not in ("transformers", "accelerate", "fusescope"):
                raise Unsupported(
                    f"fusescope.generate calls no hooks, and {name or 'the model'} has one; remove it, or "
                    "use the model's own generate"
                )


def _check_last(torch, keep, windows) -> None:
    """A prompt goes on from its last token; where that is padding, and a window shows it padding alone,
    transformers' attention implementations differ in what comes out."""
    window = min((w for w in windows if w is not None), default=None)
    behind = keep.flip(1).int().argmax(1)  # padding at the end
    if window is not None and int(behind.max()) >= window:
        raise Unsupported(
            f"fusescope.generate goes on from a prompt's last token, and {int(behind.max())} of padding at "
            f"the end fill a sliding window of {window}: pad at the left"
        )


def _check_sampling(do_sample, temperature, top_k, top_p) -> None:
    for name, value in (("temperature", temperature), ("top_k", top_k), ("top_p", top_p)):
        if value is not None and not do_sample:
            raise ValueError(f"{name} is of sampling: give do_sample=True with it")
    if temperature is not None:
        Parameter("temperature", "float", above=0).check(temperature)
    if top_k is not None:
        check_int("top_k", top_k, 1)
    if top_p is not None:
        Parameter("top_p", "float", above=0, high=1).check(top_p)


def _ends(model, given) -> tuple[list[int], int | None]:
    """(tokens that end a sequence, what follows them)."""
    own = getattr(model, "generation_config", None)
    for name, neutral in _NEUTRAL.items():
        value = getattr(own, name, None)
        if value is not None and value != neutral:
            raise Unsupported(f"fusescope.generate has no {name}, which the model's generation_config sets")
    found = getattr(own, "eos_token_id", None) if given is None else given
    if found is not None and not isinstance(found, int):
        found = getattr(found, "tolist", lambda: found)()  # a tensor, as transformers has it
    stops = [] if found is None else list(found) if isinstance(found, (list, tuple, set)) else [found]
    if any(not isinstance(token, int) or isinstance(token, bool) for token in stops):
        raise TypeError(f"eos_token_id is a token's number or a list of these, not {found!r}")
    pad = getattr(own, "pad_token_id", None)
    return stops, pad if pad is not None else (stops[0] if stops else None)


def _decoder(family, config, model):
    """The decoder of a model, kept while its weights are the same tensors, unchanged."""
    from fusescope.models.run import weights
    from fusescope.models.run.decoder.decoder import Decoder

    windows = _windows(model, config.layers)
    versions = tuple((p.data_ptr(), None if p.is_inference() else p._version) for p in model.parameters())
    state, known = (config, windows, versions), _decoders.get(model)
    try:
        if (
            known is None
            or known[0] != state
            or not weights.unchanged(family, config, model, known[1].layers.weights)
        ):
            known = _decoders[model] = state, Decoder(family, config, model, windows)
    except KeyError as missing:
        raise Unsupported(
            f"fusescope.generate does not run this {type(model).__name__}: it has no parameter "
            f"{missing.args[0]}; use its own generate"
        ) from None
    return known[1]
