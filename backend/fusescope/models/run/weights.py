"""Weights into a Hugging Face module from a checkpoint, and out of it under our names."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import safe_open

from fusescope.models.describe import tree
from fusescope.models.describe.checkpoint import Found
from fusescope.models.describe.family import Config


def fill(module: Any, found: Found) -> None:
    """Copy the checkpoint's tensors into a Hugging Face module, after ``examine``; the module keeps its
    dtype."""
    state = dict(module.named_parameters(remove_duplicate=False))
    files: dict[Path, list[tuple[str, str]]] = {}
    for theirs, (file, at) in found.where.items():
        files.setdefault(file, []).append((theirs, at))
    loaded = {}
    for file, names in files.items():
        with safe_open(str(file), framework="pt") as tensors:
            loaded |= {theirs: tensors.get_tensor(at) for theirs, at in names}
    with torch.no_grad():
        for theirs, tensor in loaded.items():
            state[theirs].copy_(tensor)


def ours(family: ModuleType, config: Config, module: Any) -> dict[str, Any]:
    """Our encoder's weights by our names, from a Hugging Face module: rows of one name put together along the
    first dimension."""
    parts = _parts(family, config, module)
    return {name: rows[0] if len(rows) == 1 else torch.cat(rows) for name, rows in parts.items()}


def unchanged(family: ModuleType, config: Config, module: Any, kept: dict[str, Any]) -> bool:
    """Whether the copies among the weights that were made of ``ours`` are still what the module has, by
    value: a tensor's version does not tell of changes through ``.data`` or NumPy. Reads both once; rows that
    were added behind a weight's own are not looked at."""
    for name, rows in _parts(family, config, module).items():
        copies = kept[name][: sum(map(len, rows))].split([len(row) for row in rows])
        for copy, row in zip(copies, rows):
            if copy.data_ptr() != row.data_ptr() and not torch.equal(copy, row):
                return False
    return True


def _parts(family: ModuleType, config: Config, module: Any) -> dict[str, list[Any]]:
    state, parts = dict(module.named_parameters(remove_duplicate=False)), {}
    for weight, layer in tree.rows(family, config):
        if weight.ours is not None:
            tensor = state[weight.name(layer)]
            tensor = tensor.t() if weight.transposed else tensor
            parts.setdefault(weight.ours.replace("{i}", str(layer)), []).append(tensor.detach())
    if config.tied and "logits" in family.MODULES:
        parts["head.weight"] = parts["word"]
    return parts
