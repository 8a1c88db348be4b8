"""What a trace says of a kernel that communicates: the arguments that torch's NCCL process group records."""

from __future__ import annotations

import json
from collections.abc import Sequence

_MOST = 4096  # characters of one text: a list of a thousand ranks is shorter
_WHOLE = ("elements_in", "elements_out", "group_size", "source_rank", "target_rank", "number")
_TEXT = ("element", "group_name", "group_ranks")


def texts(args: Sequence) -> list[str | None]:
    """One text per kernel, None where its arguments name no collective: the JSON of an object with "name" and
    those of elements_in, elements_out, group_size, element, group_name, group_ranks, source_rank, target_rank
    and number (the collective's place in its group) that are there and sound."""
    names = [a.collective for a in args]
    if set(map(type, names)) <= {type(None)}:
        return names
    return [_text(a) if isinstance(a.collective, str) and a.collective else None for a in args]


def _text(args) -> str | None:
    found: dict = {"name": args.collective}
    for name in _WHOLE:
        value = getattr(args, name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 18:
            value = int(value)
        if type(value) is int and 0 <= value < 1 << 62:
            found[name] = value
    for name in _TEXT:
        value = getattr(args, name)
        if isinstance(value, list):
            value = str(value)
        if isinstance(value, str | int) and not isinstance(value, bool):
            found[name] = str(value)
    text = json.dumps(found)
    return text if len(text) <= _MOST else None
