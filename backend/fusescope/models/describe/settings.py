"""A family's sizes as Hugging Face's configuration writes them: one table, read for a checkpoint and written
for a model that is built."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from fusescope.core.schema import Parameter
from fusescope.models.describe.family import Config

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "relu": "relu",
}
"""Hugging Face's words for the activations of ``Config``."""
_FIELDS = {f.name for f in dataclasses.fields(Config)}


@dataclass(frozen=True)
class Settings:
    """How a family's config.json says its sizes.

    title: for messages; model_type, config, module: Hugging Face's name of the family, its configuration
    class and its module class; names: size (of ``Config``, ``more`` included, or "image", the pixels of an
    edge) → key there; defaults: sizes that a config.json may leave out; fixed: keys that can have this value
    only; activations: the words that the key of "activation" may have, the family's own first; deviation: the
    key of the standard deviation that random weights have, None where there is no such.
    """

    title: str
    model_type: str
    config: str
    module: str
    names: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    activations: tuple[str, ...] = ("gelu",)
    deviation: str | None = "initializer_range"


def keywords(family: ModuleType, config: Config) -> dict[str, Any]:
    """The keywords of Hugging Face's configuration for a model of these sizes."""
    table = family.SETTINGS
    found = {key: getattr(config, size) for size, key in table.names.items()}
    if "activation" in table.names:
        found[table.names["activation"]] = next(
            w for w in table.activations if ACTIVATIONS[w] == config.activation
        )
    # scores then have a deviation of about 1 and every layer matters; the usual 0.02 leaves attention nearly
    # uniform
    if table.deviation:
        found[table.deviation] = config.hidden**-0.5
    further = family.further(config) if hasattr(family, "further") else {}
    return found | dict(table.fixed) | further


def sizes(family: ModuleType, data: Mapping[str, Any]) -> Config:
    """The sizes in a checkpoint's config.json; ValueError where they are not of this family."""
    table = family.SETTINGS
    said = "the checkpoint's config.json says"
    if data.get("model_type") != table.model_type:
        raise ValueError(
            f"a {table.title} checkpoint's config.json has model_type {table.model_type}, not "
            f"{data.get('model_type')!r}"
        )
    given = {size: data[key] for size, key in table.names.items() if data.get(key) is not None}
    missing = [key for size, key in table.names.items() if size not in given and size not in table.defaults]
    if missing:
        raise ValueError(f"the checkpoint's config.json does not say {', '.join(missing)}")
    for key, value in table.fixed.items():
        if data.get(key, value) != value:
            raise ValueError(f"{key} of a {table.title} checkpoint is {_json(value)}, not {_json(data[key])}")
    found = {"name": "checkpoint", **table.defaults, **given}
    if "activation" in table.names:
        word = given.get("activation", table.activations[0])
        if word not in table.activations:
            raise ValueError(
                f"{table.names['activation']} of a {table.title} checkpoint is "
                f"{' or '.join(table.activations)}, not {word!r}"
            )
        found["activation"] = ACTIVATIONS[word]
    for size in given:
        _check_number(size, table.names[size], given[size])
    if not found.get("head_dim"):
        if found["hidden"] % found["heads"]:
            raise ValueError(
                f"heads divides the width; {said} {found['heads']} heads and width {found['hidden']}"
            )
        found["head_dim"] = found["hidden"] // found["heads"]
    found["ffn"] = found.get("ffn") or 4 * found["hidden"]
    if found.get("kv_heads") and found["heads"] % found["kv_heads"]:
        raise ValueError(f"heads is a multiple of KV heads; {said} {found['heads']} and {found['kv_heads']}")
    if "image" in found:
        image, patch = found.pop("image"), found["patch"]
        if not isinstance(image, int) or not isinstance(patch, int) or image % patch:
            raise ValueError(f"an image is square and a multiple of its patch; {said} {image} and {patch}")
        found["positions"] = (image // patch) ** 2 + 1
    more = {size: found.pop(size) for size in list(found) if size not in _FIELDS}
    more |= family.more(data) if hasattr(family, "more") else {}
    return Config(
        **found
        | {"kv_heads": found.get("kv_heads") or 0, "eps": float(found.get("eps", Config.eps)), "more": more}
    )


def resized(
    family: ModuleType, own: Config, heads: int | None, head_dim: int | None, layers: int | None, seq: int
) -> Config:
    """A model's sizes for other heads, head size, layers and length: the width is their product (asked for
    alone, a divisor of the width), the FFN and KV heads keep their ratio, position tables grow. ValueError in
    one sentence."""
    if getattr(family, "FREE_HEADS", False):
        found = replace(own, heads=heads or own.heads, head_dim=head_dim or own.head_dim)
    else:
        hidden, heads, head_dim = _width(own, heads, head_dim)
        found = replace(
            own, hidden=hidden, heads=heads, head_dim=head_dim, ffn=own.ffn * hidden // own.hidden
        )
    if own.kv_heads:
        group = own.heads // own.kv_heads
        found = replace(found, kv_heads=found.heads // group if found.heads % group == 0 else found.heads)
    positions = own.positions and max(
        own.positions, seq + bool(family.PHASES)
    )  # a decoded token stands after the seq of the cache
    if own.patch:
        positions = _of_square(seq)
    elif hasattr(family, "INPUT"):
        positions = seq
    return replace(found, layers=layers or own.layers, positions=positions)


def _check_number(size: str, key: str, value: Any) -> None:
    """ValueError where a value of config.json is not of its size's kind."""
    if size not in ("activation", "tied"):
        least = 1 if size in ("hidden", "layers", "heads", "head_dim", "ffn", "patch", "image") else 0
        Parameter(f"{key} of config.json", "float" if size == "eps" else "int", low=least).check(value)


def _of_square(seq: int) -> int:
    side = math.isqrt(seq - 1) if seq > 1 else 0
    if side * side != seq - 1 or side == 0:
        near = max(1, round(math.sqrt(max(seq - 1, 1))))
        raise ValueError(
            f"seq of an image model is a square of patches and the class token, such as {near * near + 1}, "
            f"not {seq}"
        )
    return seq


def _width(own: Config, heads: int | None, head_dim: int | None) -> tuple[int, int, int]:
    """(hidden, heads, head_dim)."""
    if heads is not None and head_dim is not None:
        return heads * head_dim, heads, head_dim
    for word, value, other in (("heads", heads, "head_dim"), ("head_dim", head_dim, "heads")):
        if value is not None and own.hidden % value:
            raise ValueError(
                f"{word} divides the width {own.hidden} of {own.name}, and {value} does not; give {other} "
                "too for another width"
            )
    if heads is not None:
        return own.hidden, heads, own.hidden // heads
    if head_dim is not None:
        return own.hidden, own.hidden // head_dim, head_dim
    return own.hidden, own.heads, own.head_dim


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
