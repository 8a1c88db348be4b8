"""The family of a model that is given by its config.json: what a file of families/ defines, made from what
transformers says. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

from fusescope.core.schema import Parameter
from fusescope.models.by_config import config_file
from fusescope.models.describe import settings
from fusescope.models.describe.family import Config, Weight, needed, rows

CONFIG = Parameter(
    "config", "text", None, "digest of config.json, so that a result is never taken for another file's"
)
_INPUTS = ("input_ids", "pixel_values", "input_features")


@dataclass(frozen=True)
class LayerWeight(Weight):
    """A weight under its whole name; ``layer``: the layer it is of, None where it is of none. kind: "table",
    "matrix", "experts", "head" or "other"."""

    layer: int | None = None
    kind: str = "other"

    def layers(self, config: Config) -> tuple[()] | tuple[None]:
        return (None,) if self.layer is None or self.layer < config.layers else ()


@dataclass(frozen=True)
class Architecture:
    """What a family defines (describe/family.py), of one config.json. It has no weight table of ours, so no
    fused layer, for the reason ``bare``; its masks are its own."""

    path: str
    found: Mapping[str, Any] = field(hash=False)
    bare: str | None = None

    PREFIXES = ("",)
    IGNORED = ()
    STRUCTURE = SETTINGS = None
    OWN_MASKS = True

    @property
    def PHASES(self) -> tuple[str, ...]:
        return ("prefill", "decode") if self.found["cache"] else ()

    @property
    def KIND(self) -> str:
        return self.found["kind"]

    @property
    def MASK(self) -> str:
        return "causal" if self.KIND == "decoder" else "full"

    @property
    def ROOT(self) -> str:
        return self.found["class"]

    @property
    def TITLE(self) -> dict[str, str]:
        return {self.path: config_file.title(self.path)}

    @cached_property
    def own(self) -> Config:
        """The sizes that config.json says; ValueError for an input that is not made here."""
        f = self.found
        if f["input"] not in _INPUTS or (f["input"] == "input_features" and not (f["mels"] and f["frames"])):
            raise ValueError(f"{f['class']} takes {f['input']}; inputs made here are {', '.join(_INPUTS)}")
        if f["input"] == "pixel_values" and not (f["image"] and f["channels"]):
            raise ValueError(f"{f['class']} takes images, and config.json says no image_size or num_channels")
        if f["input"] == "input_ids" and not f["vocab"]:
            raise ValueError(f"{f['class']} takes tokens, and its config.json says no vocab_size")
        image = f["input"] == "pixel_values"
        return Config(
            config_file.title(self.path),
            f["hidden"],
            f["layers"],
            f["heads"],
            f["head_dim"],
            f["ffn"],
            f["vocab"],
            f["kv_heads"],
            f["positions"],
            patch=(f["patch"] or 1) if image else 0,
            channels=f["channels"] if image else 0,
            tied=f["tied"],
            more=self._more(),
        )

    def _more(self) -> dict[str, Any]:
        """Of Config.more what every file has, and the shapes of a cache."""
        cache = self.found["cache"]
        found = {"config": config_file.digest(self.path)}
        return found | ({"cache": tuple(map(tuple, cache))} if cache else {})

    @property
    def tokens(self) -> int | None:
        """Tokens of an image, with the class token; None where the case says how many."""
        if self.found["input"] != "pixel_values":
            return None
        return (self.found["image"] // self.own.patch) ** 2 + 1

    @cached_property
    def WEIGHTS(self) -> tuple[Weight, ...]:
        return tuple(self._weight(*row) for row in self.found["weights"])

    def _weight(self, name: str, shape: list[int], kind: str) -> Weight:
        layer = None
        for stack in self.found["stacks"]:
            if found := re.match(re.escape(stack) + r"(\d+)\.", name):
                layer = int(found[1])
        steps = re.sub(r"(^|\.)(\d+)\.", r"\1layer \2.", name).split(".")[:-1]
        return LayerWeight(name, tuple(shape), "/".join(steps) or name, layer=layer, kind=kind)

    def sizes(self, case: Mapping[str, Any]) -> Config:
        """Of a case: as many layers as it says. ValueError for other sizes than the file's, more layers, more
        tokens than it has positions for, and a file that is not the one the case was made for."""
        own, title = self.own, config_file.title(self.path)
        if case.get("config") not in (None, "", own.more["config"]):
            raise ValueError(
                f"{self.path} has changed: its digest is {own.more['config']}, not {case['config']}"
            )
        for key in ("heads", "head_dim"):
            if case.get(key) not in (None, getattr(own, key)):
                raise ValueError(f"{title} has {key} {getattr(own, key)}; {case[key]} was asked for")
        layers = case.get("layers") or own.layers
        if layers > own.layers:
            raise ValueError(f"{title} has {own.layers} layers; {layers} were asked for")
        if layers < own.layers and not self.found["stacks"]:
            raise ValueError(
                f"the layers of {self.ROOT} cannot be distinguished: it runs with all {own.layers}"
            )
        if self.tokens is not None and case.get("seq") not in (None, self.tokens):
            raise ValueError(f"an image of {title} is {self.tokens} tokens, not {case['seq']}")
        tokens = needed(case)
        if self.tokens is None and own.positions and tokens > own.positions:
            raise ValueError(f"{title} has positions for {own.positions} tokens; {tokens} were asked for")
        return replace(own, layers=layers)


@dataclass(frozen=True)
class Covered(Architecture):
    """An architecture whose layers are those of a family of ours, in the file's sizes: what that says, and so
    its fused layers and masks. A sliding window that hides some of its tokens is a mask of its own."""

    family: ModuleType | None = None

    @property
    def SETTINGS(self):
        return self.family.SETTINGS

    @property
    def STRUCTURE(self) -> str:
        return self.family.STRUCTURE

    @property
    def MODULES(self) -> Mapping[str, str]:
        return self.family.MODULES

    @property
    def WEIGHTS(self) -> tuple[Weight, ...]:
        return self.family.WEIGHTS

    @property
    def OWN_MASKS(self) -> bool:
        return self.own.more.get("window", self.own.positions) < self.own.positions

    @cached_property
    def own(self) -> Config:
        """The sizes as the family reads them; ValueError for what it does not have."""
        said = {**self.found["settings"], "tie_word_embeddings": self.found["tied"]}
        config = settings.sizes(self.family, said)
        if config.head_dim % 8:
            raise ValueError(f"the head size is a multiple of 8, not {config.head_dim}")
        return replace(config, name=config_file.title(self.path), more={**config.more, **self._more()})

    def difference(self) -> str | None:
        """The first weight that is not as in the family's table; None where all are."""
        there = {name: tuple(shape) for name, shape, _ in self.found["weights"]}
        table = {w.name(i): w.dims(self.own) for w, i in rows(self.family, self.own)}
        wrong = sorted(n for n in there.keys() | table.keys() if there.get(n) != table.get(n))
        return wrong[0] if wrong else None


def family(name: str, families: Sequence[ModuleType]) -> Architecture:
    """Of the path of a config.json or its folder; ValueError in one sentence where it is no model's.
    families: those of ours that may cover it."""
    path = config_file.resolved(name)
    return _family(path, config_file.digest(path), tuple(families))


@lru_cache(maxsize=32)
def _family(path: str, content: str, families: tuple[ModuleType, ...]) -> Architecture:
    found = config_file.description(path)
    for module in families:
        table = module.SETTINGS
        if found["cache"] and (table.model_type, table.module) == (found["model_type"], found["class"]):
            covered = Covered(path, found, family=module)
            try:
                wrong = covered.difference()
            except ValueError as error:
                return Architecture(path, found, str(error))
            return Architecture(path, found, f"its {wrong} is not in our table") if wrong else covered
    known = ", ".join(sorted({m.SETTINGS.title for m in families}))
    return Architecture(path, found, f"it needs a weight table ({known}), and there is none")


def reason(module: Any, mode: Any) -> str | None:
    """Why an execution mode (modes.Mode) is not for this architecture, None where it may be."""
    found = module.found
    if mode.attention in ("fusescope", "flash") and found["ours"]:
        return f"{mode.name} does not serve {found['class']}: {found['ours']}"
    if mode.attention == "sdpa" and not found["sdpa"]:
        return f"{mode.name} is not for {found['class']}, whose attention sdpa does not compute"
    if mode.attention == "flash" and not found["flash"]:
        return f"{mode.name} is not for {found['class']}, which does not take FlashAttention"
    if mode.attention == "flex_attention" and not found["flex"]:
        return f"{mode.name} is not for {found['class']}, which does not take FlexAttention"
    if mode.attention is None and module.bare:
        return f"{mode.name} does not run this {found['class']}: {module.bare}"
    return None
