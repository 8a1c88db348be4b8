"""From words to cases and implementations: how lists are split where the values themselves hold commas.

A case is ``key=value,key=value``. It is cut only at a comma that a parameter of the operator and '='
follow, because a mask's text has commas of its own: ``seq=512,mask=bigbird:window=64,seed=1,heads=12`` has
three keys; and never in brackets, as those of a score expression. (A file name that holds ``,heads=``
cannot be written so.) A list of masks is cut where a mask's name or ``file:`` begins, a list of
implementations not before ``KEY=``, which belongs to a swept kernel's name: ``v2_x:TILE=64,STAGES=3,eager``
names two.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from fusescope import ops
from fusescope.core.schema import Parameter


def parse_case(text: str, parameters: Sequence[Parameter]) -> dict[str, str]:
    """One --case as texts by key. ValueError for a key that the operator does not have, one given twice, and
    no '='."""
    kinds = {p.name: p.kind for p in parameters}
    case: dict[str, str] = {}
    last = None
    for piece in text.split(","):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if last is not None and is_open(case[last]):
            case[last] += "," + piece
        elif equals and key in kinds:
            if key in case:
                raise ValueError(f"--case {text}: {key} is given twice")
            case[key], last = value, key
        elif last is not None and kinds[last] == "mask":
            case[last] += "," + piece
        elif not equals:
            raise ValueError(f"--case {text}: {piece!r} is not of the form key=value")
        else:
            raise ValueError(f"--case {text}: the keys are {', '.join(kinds)}, not {key!r}")
    return case


def is_open(text: str) -> bool:
    """Whether a bracket is open at the end, as in a part of where(q > k, score, 0)."""
    return sum(text.count(c) for c in "([") > sum(text.count(c) for c in ")]")


def split_outside_brackets(text: str) -> list[str]:
    """The pieces between commas that are in no brackets."""
    found: list[str] = []
    for piece in text.split(","):
        if found and is_open(found[-1]):
            found[-1] += "," + piece
        else:
            found.append(piece)
    return [piece.strip() for piece in found]


def split_masks(text: str) -> list[str]:
    """A list of masks as texts; a piece that is neither a mask's name nor a file continues the mask before
    it."""
    found: list[str] = []
    for piece in text.split(","):
        starts = piece.startswith("file:") or "=" not in piece.partition(":")[0]
        if starts or not found:
            found.append(piece)
        else:
            found[-1] += "," + piece
    return found


def split_impls(words: Iterable[str]) -> list[str]:
    """Implementation names out of --impl; a piece KEY=value continues the swept kernel before it."""
    found: list[str] = []
    for word in words:
        for piece in word.split(","):
            if found and re.fullmatch(r"[A-Za-z_]\w*=[^:]+", piece) and ":" in found[-1]:
                found[-1] += "," + piece
            elif piece:
                found.append(piece)
    return list(dict.fromkeys(found))


def axis(parameter: Parameter, text: str) -> list[str]:
    """The values of one option, a list of them separated by commas."""
    values = split_masks(text) if parameter.kind == "mask" else split_outside_brackets(text)
    if not all(values):
        raise ValueError(f"--{option(parameter)} {text}: a value is empty")
    return values


def option(parameter: Parameter) -> str:
    return parameter.name.replace("_", "-")


def cases(op: str, given: Sequence[str], axes: dict[str, list[str]]) -> list[dict]:
    """Complete cases: every --case (or one empty case), crossed with the options' lists for the keys that it
    leaves out.

    Equal cases stay once. ValueError from the operator's own check.
    """
    module = ops.load(op)
    return crossed(module.PARAMETERS, module.validate, given, axes)


def crossed(
    parameters: Sequence[Parameter],
    validate: Callable[[dict], dict],
    given: Sequence[str],
    axes: dict[str, list[str]],
) -> list[dict]:
    """``cases`` for anything that has parameters and a check of its own, such as a model."""
    found = []
    for case in [parse_case(text, parameters) for text in given] or [{}]:
        free = {key: values for key, values in axes.items() if key not in case}
        for choice in itertools.product(*free.values()):
            whole = validate(case | dict(zip(free, choice)))
            if whole not in found:
                found.append(whole)
    return found
