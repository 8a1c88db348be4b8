"""What a model is fed to look at its scores: random tokens, a text through a local tokenizer folder, or a
file of token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MOST = 1 << 24  # bytes of a file of token ids


def check(given: Any) -> str | dict[str, str]:
    """ "random", {"text": …, "tokenizer": folder} or {"tokens": file}, checked as far as it can be without a
    tokenizer. ValueError."""
    if given in (None, "random"):
        return "random"
    keys = set(given) if isinstance(given, Mapping) else set()
    if keys not in ({"text", "tokenizer"}, {"tokens"}) or not all(
        isinstance(v, str) and v.strip() for v in given.values()
    ):
        raise ValueError(
            f'input is "random", {{"text", "tokenizer"}} or {{"tokens"}}, each a text, not {given!r}'
        )
    if "tokens" in keys:
        tokens(given["tokens"])
    elif not Path(given["tokenizer"]).expanduser().is_dir():
        raise ValueError(f"a tokenizer is a local folder with its files, and {given['tokenizer']} is none")
    return dict(given)


def tokens(file: str) -> list[list[int]]:
    """Sequences of token ids: .npy with one or two dimensions of whole numbers, else text with one sequence a
    line. ValueError."""
    path = Path(file).expanduser()
    try:
        if path.exists() and not path.is_file():  # a device has no size and may have no end
            raise ValueError(f"{file} is no regular file of token ids")
        if path.stat().st_size > _MOST:
            raise ValueError(
                f"a file of token ids has at most 16 MiB, {file} has {path.stat().st_size:,} bytes"
            )
        if path.suffix == ".npy":
            array = _array(path)
            if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
                raise ValueError(
                    f"{file} holds {array.ndim} dimensions of {array.dtype}; token ids are one or two of "
                    "whole numbers"
                )
            found = np.atleast_2d(array).tolist()
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            found = [list(map(_number, line.replace(",", " ").split())) for line in lines if line.strip()]
    except OSError as error:
        raise ValueError(f"the token ids cannot be read: {error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file} is neither .npy nor a text of token ids") from None
    if not found or not all(found) or min(map(min, found)) < 0:
        raise ValueError(f"{file} holds no sequence of token ids, or one that is empty or below 0")
    return found


def _array(path: Path) -> np.ndarray:
    """The array of a .npy file: no larger than its file, no objects."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, RecursionError):
        raise ValueError(f"{path} is no whole .npy file of numbers") from None


def _number(word: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", word):
        raise ValueError(f"a token id is a whole number of at most 18 digits, not {word[:40]!r}")
    return int(word)


def encode(text: str, folder: str) -> list[list[int]]:
    """One sequence: the text through the tokenizer in a local folder (transformers). ValueError where it
    cannot be loaded."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(Path(folder).expanduser()), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise ValueError(f"the tokenizer in {folder} cannot be loaded: {reason}") from None
    ids = tokenizer(text)["input_ids"]
    if not ids:
        raise ValueError("the text has no token")
    return [list(map(int, ids))]


def fitted(
    name: str, case: Mapping[str, Any], sequences: list[list[int]], vocab: int
) -> tuple[dict[str, Any], list[list[int]]]:
    """(the case with batch, seq and lengths of these sequences, cut at the case's seq; the sequences so cut).
    ValueError for ids beyond the vocabulary."""
    cut = [s[: case["seq"]] for s in sequences]
    top = max(map(max, cut))
    if top >= vocab:
        raise ValueError(f"token ids of {name} lie below {vocab:,}; there is {top:,}")
    lengths = [len(s) for s in cut]
    seq = max(lengths)
    same = all(n == seq for n in lengths)
    return dict(case) | {
        "batch": len(cut),
        "seq": seq,
        "lengths": "fixed" if same else "+".join(map(str, lengths)),
    }, cut
