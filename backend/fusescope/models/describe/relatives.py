"""Models of the same structure: which of them is most like another, and in which sizes the two differ."""

from __future__ import annotations

import math

from fusescope.models.by_config import config_file
from fusescope.models.describe import catalog
from fusescope.models.describe.tree import total

_OTHER_FAMILY = 1.0
"""Doublings of the parameters that weigh as much as another family: Qwen 3 8B is less like Qwen 3 0.6B than
like Llama 3 8B."""
_SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")


def relatives(name: str) -> list[str]:
    """The other models of its family, and those of families with the same layers in other sizes; first the
    one nearest in parameters."""
    if config_file.is_path(name):
        return []
    own = catalog.family(name)
    alike = [n for n in catalog.names() if n != name and _alike(name, n)]

    def distance(other: str) -> float:
        further = 0.0 if catalog.family(other) is own else _OTHER_FAMILY
        return abs(math.log2(total(other) / total(name))) + further

    return sorted(alike, key=distance)


def apart(name: str, other: str) -> dict[str, tuple[int, int]]:
    """{size: (that of ``name``, that of ``other``)} where they differ, "parameters" first."""
    a, b = _sizes(name), _sizes(other)
    found = {size: (a[size], b[size]) for size in a if a[size] != b[size]}
    if found.get("kv_heads") == found.get("heads"):  # each query head has one of its own
        found.pop("kv_heads", None)
    return found


def _alike(name: str, other: str) -> bool:
    """Of an unknown structure only models of the same family are alike."""
    own, its = catalog.family(name), catalog.family(other)
    return own is its or (own.STRUCTURE is not None and _layers(name) == _layers(other))


def _layers(name: str) -> tuple:
    """What the layers of a model are, whatever their sizes: GPT-2 and Llama differ in the activation."""
    family = catalog.family(name)
    return family.KIND, family.PHASES, family.STRUCTURE, catalog.config(name).activation


def _sizes(name: str) -> dict[str, int]:
    config = catalog.config(name)
    sizes = {size: getattr(config, size) for size in _SIZES}
    sizes["kv_heads"] = config.kv_heads or config.heads
    return {"parameters": total(name)} | sizes
