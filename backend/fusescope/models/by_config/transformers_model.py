"""What transformers makes of a config.json: class, weights, inputs, and which attentions it takes.

``python -m fusescope.models.by_config.transformers_model FILE`` prints ``describe`` of it as one line of
JSON, so that a process without torch can ask. A model is laid out on the meta device: no memory, whatever
its size. Nothing is downloaded, and no code of a checkpoint runs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from fusescope.models.hugging_face import support
from fusescope.models.run import caching

_LAYERS = (
    "num_hidden_layers",
    "encoder_layers",
    "decoder_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "num_layers",
    "n_layer",
)
_MOST_LAYERS = 1024


class Refused(ValueError):
    """One sentence: why no model is made of a file."""


def configuration(file: str, layers: int | None = None) -> Any:
    """transformers' configuration of a config.json, with fewer ``layers`` where that is said."""
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        data = json.loads(Path(file).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"it is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise Refused("it holds no JSON object")
    kind = data.pop("model_type", None)
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        import transformers

        remote = "; code that comes with a checkpoint (auto_map) is not run" if "auto_map" in data else ""
        raise Refused(f"model_type {kind!r} is not one of transformers {transformers.__version__}{remote}")
    for key in ("auto_map", "quantization_config", "dtype", "torch_dtype", "transformers_version"):
        if data.pop(key, None) is not None and key == "quantization_config":
            raise Refused("its weights are quantized (quantization_config), which is not run here")
    try:
        whole = AutoConfig.for_model(kind, **data)
        return whole if layers is None else _with_layers(whole, data, kind, layers)
    except Refused:
        raise
    except Exception as error:  # of a class of transformers, about values that it does not take
        raise Refused(f"transformers refuses it: {_line(error)}") from None


def _with_layers(whole: Any, data: dict, kind: str, layers: int) -> Any:
    """The configuration with so many layers in every stack; settings that differ by layer are cut."""
    from transformers import AutoConfig

    count = number_of_layers(whole)
    if layers == count:
        return whole
    # what the class itself calls it (GPT-2: n_layer), as the file may leave it to the default
    names = {whole.attribute_map.get(n, n) for n in _LAYERS} | set(_LAYERS)
    values = whole.to_dict()
    given = {n: layers for n in names if values.get(n) == count}
    given |= {n: v[:layers] for n, v in values.items() if isinstance(v, list) and len(v) == count}
    return AutoConfig.for_model(kind, **{n: v for n, v in data.items() if n not in given} | given)


def number_of_layers(config: Any) -> int:
    """Layers of its (largest) stack, 0 where the configuration does not say."""
    found = [getattr(config, n, None) for n in _LAYERS]
    return max((n for n in found if type(n) is int), default=0)


def model(
    file: str, layers: int, head: bool, weights: str | None = None, deviation: float | None = None
) -> Any:
    """The causal language model of a config.json, without a ``head`` the base model, with eager attention, in
    float32: with random weights of this standard deviation where the class lets it be chosen, or with those
    of a folder's *.safetensors. Refused where these have no head."""
    from transformers import AutoModel, AutoModelForCausalLM

    given, auto = configuration(file, layers), AutoModelForCausalLM if head else AutoModel
    if weights is not None:
        found, report = auto.from_pretrained(
            weights,
            config=given,
            attn_implementation="eager",
            dtype="float32",
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
        if head and (missing := sorted(report["missing_keys"])):
            raise Refused(f"{weights} has no weights for {', '.join(missing[:3])} of {type(found).__name__}")
        return found
    for name in ("initializer_range", "init_std"):
        if deviation and isinstance(getattr(given, name, None), float):
            setattr(given, name, deviation)
    return auto.from_config(given, attn_implementation="eager")


def describe(file: str) -> dict[str, Any]:
    """Sizes, weights and what it supports, of all its layers. Refused in one sentence.

    kind: "encoder", "decoder" or "encoder-decoder"; input: the tensor that a forward takes; weights: [name,
    shape, "table" | "matrix" | "experts" | "head" | "other"]; tied: whether the head is a table; stacks:
    prefixes of names that a layer's number follows; sdpa, flex, flash: whether these compute its attention;
    ours: why it does not take our attention, None where it does; registry: whether it asks transformers'
    registry of attentions; cache: of a decoder that generates, which then has its
    head, caching.shapes of each layer, and takes: caching.takes; else uncached: why not; settings: all of the
    configuration.
    """
    config = configuration(file)
    layers = number_of_layers(config)
    if not 1 <= layers <= _MOST_LAYERS:
        raise Refused(f"a model has 1 to {_MOST_LAYERS} layers; it says {layers}")
    kind, sizes = _kind(config), _sizes(config)
    module, generates = _generating(file, layers, kind, sizes)
    if module is None:
        try:
            module = _laid_out(file, layers, head=False)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"transformers makes no base model of it: {_line(error)}") from None
    cls = type(caching.body(module) if generates["cache"] else module)  # what asks for the attention
    weights, tied = _weights(module)
    found = {
        "model_type": config.model_type,
        "class": type(module).__name__,
        "kind": kind,
        "input": module.main_input_name,
        "layers": layers,
        "weights": weights,
        "tied": tied,
        "stacks": _stacks(weights, layers),
        "sdpa": bool(cls._supports_sdpa) and not support.caps_scores(cls, config),
        "flex": bool(getattr(cls, "_supports_flex_attn", False)),
        "flash": bool(getattr(cls, "_supports_flash_attn", False)),
        "ours": support.why_not(cls),
        "registry": support.asks_registry(cls),
        "settings": json.loads(json.dumps(config.to_dict(), default=str)),
    }
    return found | sizes | generates


def _laid_out(file: str, layers: int, head: bool) -> Any:
    """The model on the meta device."""
    import torch

    with torch.device("meta"):
        return model(file, layers, head)


def _generating(file: str, layers: int, kind: str, sizes: dict[str, int]) -> tuple[Any, dict[str, Any]]:
    """(the laid out model with its head where it generates over a cache of ours, else None; cache, takes and
    uncached of ``describe``)."""
    if kind != "decoder":
        return None, {"cache": None, "takes": [], "uncached": f"it is an {kind}"}
    heads = sizes["kv_heads"] or sizes["heads"]
    try:
        module = _laid_out(file, layers, head=True)
    except Exception as error:  # of a class of transformers
        words = f"its model with a head cannot be made: {_line(error)}"
        return None, {"cache": None, "takes": [], "uncached": words}
    try:
        cache = caching.shapes(module, layers, (heads, sizes["head_dim"], sizes["head_dim"]))
    except caching.Uncached as why:
        return None, {"cache": None, "takes": [], "uncached": str(why)}
    except Exception as error:  # of a class of transformers
        words = f"over a cache of ours it fails: {_line(error)}"
        return None, {"cache": None, "takes": [], "uncached": words}
    return module, {"cache": cache, "takes": caching.takes(module), "uncached": None}


def _kind(config: Any) -> str:
    from transformers.models.auto import modeling_auto as auto

    if config.is_encoder_decoder:
        return "encoder-decoder"
    causal = config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    masked = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return "decoder" if causal and not masked else "encoder"


def _sizes(config: Any) -> dict[str, int]:
    """Sizes under our names; 0 where the configuration has no such."""

    def number(*names: str) -> int:
        values = (getattr(config, name, None) for name in names)
        return next((v for v in values if type(v) is int and v > 0), 0)

    hidden, heads = number("hidden_size", "d_model", "embed_dim"), number("num_attention_heads", "num_heads")
    patch, image = number("patch_size"), number("image_size")
    return {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": number("num_key_value_heads"),
        "head_dim": number("head_dim", "d_kv") or (hidden // heads if heads else 0),
        "ffn": number("intermediate_size", "ffn_dim", "encoder_ffn_dim", "d_ff"),
        "vocab": number("vocab_size"),
        "positions": number("max_position_embeddings", "n_positions"),
        "window": number("sliding_window"),
        "image": image,
        "patch": patch,
        "channels": number("num_channels"),
        "experts": number("num_local_experts", "num_experts", "n_routed_experts"),
        "experts_used": number("num_experts_per_tok"),
        "mels": number("num_mel_bins"),
        "frames": 2 * number("max_source_positions"),
    }


def _weights(module: Any) -> tuple[list[list], bool]:
    """(weights, tied) of ``describe``."""
    import torch

    tables = {id(m.weight) for m in module.modules() if isinstance(m, torch.nn.Embedding)}
    head = getattr(module.get_output_embeddings(), "weight", None)
    found = []
    for name, p in module.named_parameters():
        kind = "table" if id(p) in tables else "matrix" if p.dim() == 2 else "other"
        if re.search(r"(^|\.)experts\.", name) and p.dim() > 1:
            kind = "experts"
        found.append([name, list(p.shape), "head" if p is head and kind == "matrix" else kind])
    return found, id(head) in tables


def _stacks(weights: list[list], layers: int) -> list[str]:
    """Prefixes behind which every number from 0 to layers − 1 stands, the outermost only."""
    seen: dict[str, set[int]] = {}
    for name, _, _ in weights:
        if found := re.match(r"(.*?)(?:^|(?<=\.))(\d+)\.", name):
            seen.setdefault(found[1], set()).add(int(found[2]))
    return sorted(prefix for prefix, numbers in seen.items() if numbers == set(range(layers)))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def main(file: str) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        found = describe(file)
    except Refused as refused:
        found = {"error": str(refused)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
