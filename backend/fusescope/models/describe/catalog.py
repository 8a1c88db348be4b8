"""The models there are, by name, and their sizes: as published, as a case asks for, or as a checkpoint's
config.json says. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fusescope.core.discovery import load_part, meant, module_names
from fusescope.core.schema import Parameter, check_int
from fusescope.models import families
from fusescope.models.by_config import architecture, config_file
from fusescope.models.describe import settings
from fusescope.models.describe.family import COMMON, DEFINES, NEW, PHASE, Config

_PREFIX = "model:"
_SIZES = ("seq", "layers", "heads", "head_dim")

_MOST_CONFIG = 16 << 20  # bytes of a config.json


@cache
def _families() -> dict[str, ModuleType]:
    """Family module by model name."""
    loaded = [load_part(families, name, DEFINES, "family of models") for name in module_names(families)]
    return {name: module for module in loaded for name in module.NAMES}


@cache
def _decoders() -> tuple[ModuleType, ...]:
    """The families whose layers our decoder has."""
    return tuple(dict.fromkeys(m for m in _families().values() if m.STRUCTURE == "decoder"))


def names() -> list[str]:
    """The models there are."""
    order = ("bert", "vit", "whisper", "gpt2", "llama", "mistral", "qwen2", "qwen3", "t5")
    known = _families()

    def place(name: str) -> int:
        short = known[name].__name__.rpartition(".")[2]
        return order.index(short) if short in order else len(order)

    return sorted(known, key=place)


def family(name: str) -> ModuleType:
    """The family's module, or for the path of a config.json its Architecture; ValueError
    for an unknown name."""
    if config_file.is_path(name):
        return architecture.family(name, _decoders())
    if name not in _families():
        raise ValueError(
            f"unknown model {name!r}, nor the path of a config.json or its folder; {meant(name, names())}"
        )
    return _families()[name]


def title(name: str) -> str:
    return config_file.title(name) if config_file.is_path(name) else family(name).TITLE[name]


def kind(name: str) -> str:
    """encoder, decoder or encoder-decoder."""
    return family(name).KIND


def op(name: str) -> str:
    """What records of the model have as their operator."""
    family(name)
    return _PREFIX + name


def named(operator: str) -> str:
    """The model of such a record; ValueError where the text is not model:NAME. A path need not exist here."""
    if not operator.startswith(_PREFIX):
        raise ValueError(f"a model's operator is written {_PREFIX}NAME, not {operator!r}")
    name = operator.removeprefix(_PREFIX)
    if not config_file.is_path(name):
        family(name)
    return name


def parameters(name: str) -> tuple[Parameter, ...]:
    """The keys of a case, with this model's own sizes as defaults."""
    return _of_architecture(family(name)) if config_file.is_path(name) else _parameters(name)


def _of_architecture(module: architecture.Architecture) -> tuple[Parameter, ...]:
    """Sizes are the file's; a model without attention has no heads."""
    own = module.own
    defaults = {"layers": own.layers, "heads": own.heads, "head_dim": own.head_dim, "mask": module.MASK}
    usual = next(p.default for p in COMMON if p.name == "seq")
    room = own.positions // 2 if module.PHASES else own.positions  # the rest for new tokens
    defaults["seq"] = module.tokens or min(usual, room or usual)
    new = replace(NEW, default=min(NEW.default, max(2, room or NEW.default)))
    free = {"heads": {"low": 0, "high": None}, "head_dim": {"low": 0, "high": None}, "layers": {"high": None}}
    found = [replace(p, default=defaults.get(p.name, p.default), **free.get(p.name, {})) for p in COMMON]
    return (*found, *((PHASE, new) if module.PHASES else ()), architecture.CONFIG)


@cache
def _parameters(name: str) -> tuple[Parameter, ...]:
    module = family(name)
    own = module.NAMES[name]
    defaults = {
        "layers": own.layers,
        "heads": own.heads,
        "head_dim": own.head_dim,
        "mask": getattr(module, "MASK", "full"),
    }
    defaults |= {"seq": module.SEQ} if hasattr(module, "SEQ") else {}
    found = [replace(p, default=defaults.get(p.name, p.default)) for p in COMMON]
    return (*found, PHASE, NEW) if module.PHASES else tuple(found)


def config(name: str, case: Mapping[str, Any] | None = None, checkpoint: str | None = None) -> Config:
    """Sizes for a case (missing keys: the model's own). With a checkpoint its config.json says them, and a
    case that asks for other ones, or for more positions than it has, is a ValueError."""
    module, case = family(name), dict(case or {})
    least = 0 if config_file.is_path(name) else 1
    given = {key: check_int(key, case[key], least) for key in _SIZES if case.get(key) is not None}
    layers, heads, head_dim = (given.get(key) for key in ("layers", "heads", "head_dim"))
    if config_file.is_path(name):
        if checkpoint is not None:
            raise ValueError(f"a checkpoint of {name} is its own folder: give that as the model")
        return module.sizes(case)
    seq = given.get("seq", getattr(module, "SEQ", 1))
    if checkpoint is None:
        own, generated = module.NAMES[name], case.get("phase") == "generate"
        seq += case["new"] - 1 if generated and case.get("new") else 0
        sizes = (None if heads == own.heads else heads, None if head_dim == own.head_dim else head_dim)
        if None not in (heads, head_dim) and sizes != (None, None) and heads * head_dim != own.hidden:
            sizes = (heads, head_dim)  # another width, said by both
        return settings.resized(module, own, *sizes, layers, seq)
    found = _of_checkpoint(module, checkpoint)
    for key, value in (("layers", layers), ("heads", heads), ("head_dim", head_dim)):
        if value not in (None, getattr(found, key)):
            raise ValueError(
                f"the checkpoint {checkpoint} has {key} {getattr(found, key)}; {value} was asked for"
            )
    needed = seq + {"decode": 1, "generate": case.get("new") or 0}.get(case.get("phase"), 0)
    if found.positions and (
        needed > found.positions or (module.NAMES[name].patch and needed != found.positions)
    ):
        word = "exactly" if module.NAMES[name].patch else "at most"
        raise ValueError(
            f"the checkpoint {checkpoint} has positions for {word} {found.positions} tokens; {needed} were "
            "asked for"
        )
    if needed > (window := found.more.get("window", needed)):
        raise ValueError(
            f"the checkpoint {checkpoint} has a sliding window of {window} tokens; {needed} were asked for: "
            "choose a shorter case, or call fusescope.generate, which has windows"
        )
    return replace(found, name=name)


def _of_checkpoint(module: ModuleType, folder: str) -> Config:
    file = Path(folder).expanduser() / "config.json"
    if not file.is_file():
        raise ValueError(f"a checkpoint is a folder with config.json and *.safetensors; there is no {file}")
    try:
        if file.stat().st_size > _MOST_CONFIG:
            raise ValueError(f"it has more than {_MOST_CONFIG >> 20} MiB")
        data = json.loads(file.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{file} holds no JSON object")
    try:
        return settings.sizes(module, data)
    except TypeError as error:
        raise ValueError(f"{file} has a value of the wrong kind: {error}") from None
