"""A checkpoint's names, shapes and dtypes against a family's table.

A checkpoint is looked at before a byte of its tensors is read: the header of a safetensors file says names,
shapes and dtypes. A name that is missing, of another shape, or of a layer that the configuration does not
have, is an error that names it; what the family's checkpoints hold besides the model (heads, old buffers) is
said and left.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from fusescope.models.describe import catalog, tree
from fusescope.models.describe.family import Config

_HEADER = 100 << 20  # bytes that a header may have, as the format's own library holds it
_DTYPES = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Found:
    """What a checkpoint holds for a model: file and name there by Hugging Face's name; ``left``: names that
    are not used, with reason."""

    where: Mapping[str, tuple[Path, str]]
    left: tuple[str, ...] = ()


@dataclass
class _Complaints:
    missing: list[str] = field(default_factory=list)
    shape: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def raise_for(self, folder: str) -> None:
        said = [
            f"{what}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
            for what, names in (
                ("missing", self.missing),
                ("of another shape", self.shape),
                ("unexpected", self.unexpected),
            )
            if names
        ]
        if said:
            raise ValueError(
                f"the checkpoint {folder} does not fit its config.json; nothing was loaded; {'; '.join(said)}"
            )


def examine(name: str, config: Config, folder: str) -> Found:
    """Compare a folder's safetensors with the family's table, by their headers alone.

    Raises ValueError in one sentence: no safetensors there (pickled weights are not read), a damaged header,
    and names that are missing, mis-shaped or unexpected.
    """
    module = catalog.family(name)
    there = _headers(Path(folder).expanduser())
    prefix = max(module.PREFIXES, key=lambda p: _matches(module, config, there, p))
    said, where, used = _Complaints(), {}, set()
    for weight, layer in tree.rows(module, config):
        names = [_checkpoint_name(n, layer, prefix, module) for n in (weight.theirs, *weight.also)]
        at = next((n for n in names if n in there), None)
        if at is None:
            if not weight.optional:
                said.missing.append(names[0])
            continue
        used.add(at)
        file, shape, dtype = there[at]
        if shape != weight.dims(config):
            said.shape.append(f"{at} is {list(shape)}, not {list(weight.dims(config))}")
        elif dtype not in _DTYPES:
            said.shape.append(f"{at} is of {dtype}, not of {', '.join(_DTYPES)}")
        where[weight.name(layer)] = file, at
    rest = sorted(set(there) - used)
    beyond = [
        n
        for n in rest
        if _of_table(module, n, prefix) and not any(fnmatch.fnmatch(n, f"*{i}") for i in module.IGNORED)
    ]
    said.unexpected = [n for n in rest if n in beyond or not _known(module, n, prefix)]
    said.raise_for(folder)
    return Found(where, tuple(rest))


def _checkpoint_name(name: str, layer: int | None, prefix: str, module: ModuleType) -> str:
    """A table's name as this checkpoint writes it: tables hold the names of the module that is built."""
    name = name.replace("{i}", str(layer))
    own = next((p for p in module.PREFIXES if p and name.startswith(p)), "")
    return prefix + name.removeprefix(own)


def _matches(module: ModuleType, config: Config, there, prefix: str) -> int:
    return sum(
        any(_checkpoint_name(n, layer, prefix, module) in there for n in (w.theirs, *w.also))
        for w, layer in tree.rows(module, config)
    )


def _of_table(module: ModuleType, name: str, prefix: str) -> bool:
    """Whether the name is of the table's form, so of a layer (or another part) that this configuration does
    not have."""
    for weight in module.WEIGHTS:
        for theirs in (weight.theirs, *weight.also):
            pattern = re.escape(_checkpoint_name(theirs, None, prefix, module)).replace(
                re.escape("None"), r"\d+"
            )
            if "{i}" in theirs and re.fullmatch(pattern, name):
                return True
    return False


def _known(module: ModuleType, name: str, prefix: str) -> bool:
    """Whether checkpoints of the family hold such a name besides the model's own."""
    bare = name.removeprefix(prefix)
    own = {
        _checkpoint_name(n, None, prefix, module)
        for w in module.WEIGHTS
        for n in (w.theirs, *w.also)
        if "{i}" not in n
    }
    return name in own or any(fnmatch.fnmatch(n, pattern) for n in (name, bare) for pattern in module.IGNORED)


def _headers(folder: Path) -> dict[str, tuple[Path, tuple[int, ...], str]]:
    """File, shape and dtype of every tensor in the folder's safetensors."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(p.name for p in folder.glob("*") if p.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        why = (
            f" ({pickled[0]} is a pickle, and those are not read: convert it with safetensors)"
            if pickled
            else ""
        )
        raise ValueError(
            f"a checkpoint is a folder with config.json and *.safetensors; {folder} has none{why}"
        )
    found = {}
    for file in files:
        for name, (shape, dtype) in _header(file).items():
            if name in found:
                raise ValueError(
                    f"the checkpoint {folder} holds {name} twice, in {found[name][0].name} and {file.name}"
                )
            found[name] = file, shape, dtype
    return found


def _header(file: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Eight bytes of length, then JSON, then the data: github.com/huggingface/safetensors, "Format"."""
    try:
        with file.open("rb") as f:
            size = int.from_bytes(f.read(8), "little")
            if not 2 <= size <= _HEADER:
                raise ValueError(f"its header would have {size} bytes")
            data = json.loads(f.read(size))
        end = max(
            (entry["data_offsets"][1] for key, entry in data.items() if key != "__metadata__"), default=0
        )
        if 8 + size + end > file.stat().st_size:
            raise ValueError(f"it ends after {file.stat().st_size} of {8 + size + end} bytes")
        return {k: (tuple(v["shape"]), v["dtype"]) for k, v in data.items() if k != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, RecursionError) as error:
        said = str(error) if type(error) is ValueError else "its header does not describe tensors in JSON"
        said = error.strerror or said if isinstance(error, OSError) else said
        raise ValueError(f"{file} is no whole safetensors file: {said}") from None
