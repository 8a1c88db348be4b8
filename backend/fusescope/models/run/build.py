"""Building a model and its inputs: Hugging Face's module from sizes with random weights, offline, or from a
checkpoint folder."""

from __future__ import annotations

import copy
import math
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fusescope.models.accuracy import block_by_block
from fusescope.models.by_config import config_file, transformers_model
from fusescope.models.by_config.architecture import Architecture
from fusescope.models.describe import cases, catalog, settings, tree
from fusescope.models.describe import checkpoint as checkpoints
from fusescope.models.describe.family import Config
from fusescope.models.hugging_face.peers import ORIGINAL
from fusescope.models.run import caching, generation, masking, weights
from fusescope.models.run.kv_cache import FixedCache
from fusescope.ops.common import peers

_WHOLE_GIB = 4.0  # of a reference that is a copy
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is built here; a look-up that fails would take 23 s


@dataclass
class Model:
    """A built model: Hugging Face's module in eval mode without its pooler, which no mode computes."""

    name: str
    config: Config
    module: Any
    dtype: str
    device: str
    checkpoint: str | None = None
    choices: dict[Any, bool] = field(default_factory=dict)  # measured on this model's shapes (fused_run.py)
    _views: dict[str, Any] = field(default_factory=dict)

    @property
    def family(self):
        return catalog.family(self.name)

    def view(self, attention: str):
        """A module of the same weights (the very tensors) with this attn_implementation; kept."""
        if attention not in self._views:
            self._views[attention] = self.fresh(attention)
        return self._views[attention]

    def forget_views(self) -> None:
        """Let the views go, and with them what was compiled for them."""
        self._views.clear()

    def fresh(self, attention: str):
        """As ``view``, but a module of its own: what is compiled or hooked stays apart."""
        shared = {id(t): t for t in (*self.module.parameters(), *self.module.buffers())}
        copied = copy.deepcopy(self.module, shared)
        registry = getattr(self.family, "found", {}).get("registry", True)
        _attend(copied, attention if registry else ORIGINAL.get(attention, attention))
        return copied

    def reference(self, dtype, change=None):
        """The model in another precision (a torch dtype), attention as matmul and softmax. A copy; of a model
        that would take more than some GiB so, or whose weights change (block_by_block.Change), one whose
        blocks are converted when they are called."""
        if change or 2**-30 * dtype.itemsize * self.parameters > _WHOLE_GIB:
            found = block_by_block.convert(self.module, dtype, change)
        else:
            found = copy.deepcopy(self.module).to(dtype)
        _attend(found, "eager")
        for part in found.modules():  # grouped products of experts take no float64
            if getattr(getattr(part, "config", None), "_experts_implementation", None) is not None:
                part.config._experts_implementation = "eager"
        return found

    @property
    def parameters(self) -> int:
        """How many numbers the weights are, tied ones once."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def bytes(self) -> int:
        """Size of the weights on the device."""
        return sum(
            t.numel() * t.element_size() for t in {id(p): p for p in self.module.parameters()}.values()
        )


def _attend(module, attention: str) -> None:
    """Set attn_implementation in every configuration of the module."""
    for part in module.modules():
        if (config := getattr(part, "config", None)) is not None:
            config._attn_implementation = attention


def build(
    name: str,
    case: Mapping[str, Any],
    dtype: str,
    device: str = "cpu",
    seed: int = 0,
    checkpoint: str | None = None,
) -> Model:
    """The model for a complete case. Random weights are drawn by seed (on the CPU, in fp32: the same on every
    device and dtype).

    A checkpoint is a folder with config.json and *.safetensors. Raises ValueError where it does not fit,
    before anything is loaded.
    """
    config, family = catalog.config(name, case, checkpoint), catalog.family(name)
    if device.startswith("cuda"):
        _sum_in_fp32()
    tensors = checkpoints.examine(name, config, checkpoint) if checkpoint else None
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _module(family, config)
        if tensors is not None:
            weights.fill(module, tensors)
        elif not _has_file(family) or config_file.weights_of(family.path) is None:
            _stir(module)
    if hasattr(module, "pooler"):
        module.pooler = None
    module = module.eval().requires_grad_(False).to(device=device, dtype=getattr(torch, dtype))
    return Model(name, config, module, dtype, device, checkpoint)


def _sum_in_fp32() -> None:
    """fp32 is fp32 and products of 16-bit types are summed in fp32, for every mode: as our kernels do, and so
    that eager itself keeps the tolerance. cuDNN's convolution (ViT's patches) would else round fp32 to TF32.
    It holds for the process."""
    torch.backends.cudnn.allow_tf32 = False
    peers.sum_in_fp32()


def _module(family, config: Config):
    """Hugging Face's module, initialised at random."""
    import transformers

    transformers.logging.set_verbosity_error()
    if _has_file(family):
        return _of_config_file(family, config)
    table, values = family.SETTINGS, settings.keywords(family, config)
    given = getattr(transformers, table.config)(**values, attn_implementation="eager")
    return operator.attrgetter(table.module)(transformers)(given)


def _has_file(family) -> bool:
    """Whether it is of a config.json, which transformers then reads."""
    return isinstance(family, Architecture)


def _of_config_file(family, config: Config):
    """The model of a config.json, with its head where it generates; ValueError where it has not the weights
    that were described."""
    file, folder = str(config_file.file_of(family.path)), config_file.weights_of(family.path)
    how = bool(family.PHASES), folder, max(1, config.hidden) ** -0.5
    module = transformers_model.model(file, config.layers, *how)
    there = {name: tuple(p.shape) for name, p in module.named_parameters()}
    said = {w.name(i): w.dims(config) for w, i in tree.rows(family, config)}
    if there != said:
        wrong = sorted(n for n in there.keys() | said.keys() if there.get(n) != said.get(n))
        raise ValueError(
            f"{family.ROOT} with {config.layers} of its layers has other weights than those of its first "
            f"{config.layers}: {', '.join(wrong[:3])}; run it with all {family.own.layers}"
        )
    return module


def _stir(module) -> None:
    """Biases and norms away from zero and one: a bias that is not added must show."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def inputs(model: Model, case: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Random inputs of a complete case on the model's device.

    input_ids: int64 (B, S), (B, 1) to decode, or pixel_values: (B, channels, side, side) in the model's
    dtype; decoder_input_ids for T5. lengths: list, lengths_tensor: int32 (B,). keep: bool (1 or B, 1, 1 or S,
    S) of mask and lengths together, to decode (B, 1, 1, S + 1); additive: the same as 0 and the dtype's
    minimum, both None where nothing is masked; causal: the mask is causal, and the module says so itself;
    mask: the Mask; cache: FixedCache of the generating phases, to decode holding lengths[b] tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    batch, seq, config, device = case["batch"], case["seq"], model.config, model.device
    found: dict[str, Any] = {"case": dict(case), "lengths": cases.lengths(case)}
    decode = case.get("phase") == "decode"
    own = getattr(model.family, "found", {})  # of a model by its config.json
    kind = own.get("input") or getattr(model.family, "INPUT", None)
    if kind == "input_features":
        shape = (batch, own["mels"], own["frames"]) if own else (batch, config.channels, 2 * seq)
        sound = torch.randn(shape, generator=generator)
        found["input_features"] = sound.to(device=device, dtype=getattr(torch, model.dtype))
    elif config.patch:
        side = own.get("image") or math.isqrt(seq - 1) * config.patch
        pixels = torch.randn(batch, config.channels, side, side, generator=generator)
        found["pixel_values"] = pixels.to(device=device, dtype=getattr(torch, model.dtype))
    else:
        shape = (batch, 1 if decode else seq)
        found["input_ids"] = torch.randint(1, config.vocab, shape, generator=generator).to(device)
    if model.family.KIND == "encoder-decoder":
        found["decoder_input_ids"] = torch.randint(1, config.vocab, (batch, seq), generator=generator).to(
            device
        )
    found["lengths_tensor"] = torch.tensor(found["lengths"], dtype=torch.int32, device=device)
    found |= masking.masks_of(model, case, found["lengths"])
    takes = own.get("takes", ("position_ids", "logits_to_keep"))
    found["settings"] = {"use_cache": False} if own and model.family.KIND == "decoder" else {}
    if case.get("phase"):
        found["settings"] = {"use_cache": True}
        counts = found["lengths_tensor"].long() if decode and found["keep"] is not None else None
        found["cache"] = FixedCache.of(model, case, generator if decode else None, counts)
        start = seq if decode else 0
        if "position_ids" in takes:
            places = torch.arange(start, start + (1 if decode else seq), device=device)[None]
            found["position_ids"] = places if counts is None else counts[:, None]
    if case.get("phase") == "generate":
        found["settings"] |= {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        shape = (batch, case["new"])
        found["forced"] = torch.randint(1, config.vocab, shape, generator=generator).to(device)
    return found


def call(module, inputs: Mapping[str, Any], attention_mask: Any = None):
    """One forward of a Hugging Face module on inputs: hidden states (B, S, width) of the last layer, to
    decode logits (B, 1, vocab), to generate those of every new token (B, new, vocab), or without ``forced``
    those of the prompt (B, 1 or S, vocab), at least of its last token.

    attention_mask: what to give instead of the prepared additive mask (a BlockMask); modules that take
    causality from themselves get none where the mask is causal.
    """
    if "forced" in inputs:
        return generation.logits(module, inputs)
    given = inputs["additive"] if attention_mask is None else attention_mask
    masked = {} if given is None else {"attention_mask": given}  # not every model of images takes one
    if "input_features" in inputs and "decoder_input_ids" not in inputs:
        return module(input_features=inputs["input_features"]).last_hidden_state
    if "pixel_values" in inputs:
        return module(pixel_values=inputs["pixel_values"], **masked).last_hidden_state
    if "decoder_input_ids" in inputs:
        source = next(n for n in ("input_features", "input_ids") if n in inputs)
        given_to = {source: inputs[source], "decoder_input_ids": inputs["decoder_input_ids"]}
        return module(**given_to, **masked, use_cache=False).last_hidden_state
    if "cache" not in inputs:
        return module(input_ids=inputs["input_ids"], **masked, **inputs["settings"]).last_hidden_state
    settings = dict(inputs["settings"], past_key_values=inputs["cache"], attention_mask=given)
    if "position_ids" in inputs:
        settings["position_ids"] = inputs["position_ids"]
    if inputs["case"]["phase"] == "prefill":  # the layers alone: the head of one token is no part of them
        return caching.body(module)(input_ids=inputs["input_ids"], **settings).last_hidden_state
    return module(input_ids=inputs["input_ids"], **settings).logits
