"""Masks: one definition from which the dense matrix, FlexAttention's mask_mod, the tile lists and the picture
come.

A mask is one file here with NAME, FORMULA (in positions q and k), DESCRIPTION, PARAMETERS and ``predicate(q,
k, p, batch)``; ``p`` holds the resolved parameters as plain numbers and, where the file defines
``tables(values, seq_q, seq_k)``, what that gives: arrays (of the same library and device as q and k) and
further numbers. A file whose masks may differ per sequence also defines ``sequences(values)``: how many
sequences they are written for, or None where all are alike. EVERY_ROW_LIVE = True says that each query sees
a key whatever the size. A predicate in the operators of common/bounds.py is also evaluated on whole tiles.
A file may say how its mask falls apart,
``parts(p)``: tuples (modulus of the rows' order, of the keys', predicate), disjoint and together the mask
(see Mask.parts).
"""

from __future__ import annotations

import sys

from fusescope.core.discovery import module_names
from fusescope.masks.common.bound import Bound
from fusescope.masks.common.dense import DenseMask, from_dense, from_file
from fusescope.masks.common.mask import NOT_MASKS, Mask, Part, definition, load, of_values

__all__ = [
    "Bound",
    "DenseMask",
    "Mask",
    "Part",
    "definition",
    "from_dense",
    "from_file",
    "load",
    "names",
    "parse",
]


def names() -> list[str]:
    """The masks that are formulas, sorted; a dense matrix comes from ``from_dense`` or
    ``parse("file:path.npy")``."""
    return module_names(sys.modules[__name__], NOT_MASKS)


def parse(text: str) -> Mask:
    """The mask that a text names: ``name[:key=value,…]``, lists as 3+5+9, or ``file:path.npy``; the inverse
    of ``str``.

    Raises ValueError saying what is allowed, for an unknown name, parameter or value and for a file that
    holds no mask.
    """
    if not isinstance(text, str):
        raise ValueError(f"a mask is written name[:key=value,…] or file:path.npy, not {text!r}")
    name, _, rest = text.strip().partition(":")
    if name == "file":
        return from_file(rest)
    if not rest and text.strip().endswith(":"):
        raise ValueError(f"{text!r} ends with a colon; a mask is written name or name:key=value,…")
    values = {}
    for item in rest.split(",") if rest else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"{text!r}: {item!r} is not of the form key=value")
        if key in values:
            raise ValueError(f"{text!r} gives {key} twice")
        values[key] = value
    return of_values(name, values, text=True)
