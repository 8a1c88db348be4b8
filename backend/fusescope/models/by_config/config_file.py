"""A model by its config.json: any architecture that the installed transformers knows. No torch.

The model's name is then the path of that file, or of a folder that holds it. What transformers makes of the
file (classes, weights, which attentions it takes) is asked once in a process of its own and kept in the build
cache by the file's content: by_config/transformers_model.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from fusescope.core import paths, whole_files

_MODULE = "fusescope.models.by_config.transformers_model"
_MOST = 16 << 20  # bytes of a config.json
_SECONDS = 300  # to import transformers and lay out a model without memory


def is_path(name: str) -> bool:
    """Whether a model's name is the path of a config.json or of a folder with one."""
    return "/" in name or name.endswith(".json")


def resolved(name: str) -> str:
    """The whole path of the config.json, or of the folder where that holds weights (*.safetensors), which are
    then loaded. ValueError where there is none."""
    path = Path(name).expanduser().absolute()
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"a model is a name, or the path of a config.json or of its folder; there is no {file}"
        )
    return str(path if path.is_dir() and any(path.glob("*.safetensors")) else file)


def file_of(name: str) -> Path:
    """The config.json of a resolved name."""
    return Path(name) / "config.json" if not name.endswith(".json") else Path(name)


def weights_of(name: str) -> str | None:
    """The folder that weights are loaded from, None where they are random."""
    return None if name.endswith(".json") else name


def title(name: str) -> str:
    """For people: the folder and the file, without looking at them."""
    path = Path(name)
    return path.name if path.name != "config.json" else f"{path.parent.name}/config.json"


def digest(name: str) -> str:
    """Eight hexadecimal digits of the file's content."""
    return hashlib.sha256(_read(file_of(name))).hexdigest()[:8]


def description(name: str) -> dict[str, Any]:
    """What transformers makes of the file, as by_config/transformers_model.py says it. ValueError with its
    sentence where it makes no model of it."""
    file = file_of(resolved(name))
    content = _read(file)
    found = _described(str(file), hashlib.sha256(content).hexdigest())
    if "error" in found:
        raise ValueError(f"{file}: {found['error']}")
    return found


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > _MOST:
            raise ValueError(f"{file} has more than {_MOST >> 20} MiB")
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


# What a description is made by: another one of any of these makes it anew.
_CODE = (
    "by_config/transformers_model.py",
    "hugging_face/support.py",
    "run/caching.py",
    "run/kv_cache.py",
)


@lru_cache(maxsize=64)
def _described(file: str, content: str) -> dict[str, Any]:
    try:
        version = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        raise ValueError("a model by its config.json needs transformers: pip install transformers") from None
    code = hashlib.sha256(
        b"".join((paths.PACKAGE / "models" / name).read_bytes() for name in _CODE)
    ).hexdigest()
    kept = paths.build_cache() / "architectures" / f"{content[:32]}-{version}-{code[:8]}.json"
    try:
        return json.loads(kept.read_text())
    except (OSError, ValueError):
        pass
    found = asked(file)
    whole_files.replace(kept, json.dumps(found))
    return found


def asked(file: str) -> dict[str, Any]:
    """The answer of a process that may import transformers."""
    own = {"PYTHONPATH": paths.python_path(), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MODULE, file],
            env=os.environ | own,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"transformers did not lay out this model within {_SECONDS} s"}
    except (ValueError, IndexError):
        lines = done.stderr.strip().splitlines()
        raise ValueError(
            f"{file}: transformers cannot be asked about it: {lines[-1] if lines else 'no answer'}"
        ) from None
