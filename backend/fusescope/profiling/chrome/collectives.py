"""What a trace says of a kernel that communicates: the arguments that torch's NCCL process group records."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from functools import lru_cache

_MOST = 4096  # characters of one text: a list of a thousand ranks is shorter
_WHOLE = ("elements_in", "elements_out", "group_size", "source_rank", "target_rank")
_TEXT = ("element", "group_name", "group_ranks")
_SAID = operator.attrgetter("collective", *_WHOLE, *_TEXT)


def texts(args: Sequence) -> list[str | None]:
    """One text per kernel, None where its arguments name no collective: the JSON of an object with "name" and
    those of elements_in, elements_out, group_size, element, group_name, group_ranks, source_rank, target_rank
    and number (the collective's place in its group) that are there and sound."""
    names = [a.collective for a in args]
    if set(map(type, names)) <= {type(None)}:
        return names
    return [_text(a) if isinstance(a.collective, str) and a.collective else None for a in args]


def _text(args) -> str | None:
    said = _SAID(args)
    try:
        text = _without_number(*said)
    except TypeError:  # a list, as of ranks, cannot be remembered
        text = _without_number.__wrapped__(*said)
    if args.number is not None and (number := _whole(args.number)) is not None:
        text = f'{text[:-1]}, "number": {number}}}'
    return text if len(text) <= _MOST else None


@lru_cache(maxsize=4096, typed=True)
def _without_number(name: str, *rest) -> str:
    """A trace repeats all but the number, so that the rest is looked at and written once. typed: True is no
    number of elements, 1 is."""
    whole, words = rest[: len(_WHOLE)], rest[len(_WHOLE) :]
    values = [*map(_whole, whole), *map(_word, words)]
    said = {key: value for key, value in zip(_WHOLE + _TEXT, values) if value is not None}
    return json.dumps({"name": name} | said)


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 18:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _word(value: object) -> str | None:
    if type(value) is str:
        return value
    return str(value) if isinstance(value, list | int) and not isinstance(value, bool) else None
