"""The Mask: a name and the parameters that were given, immutable; sizes come only when it is bound."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from fusescope.core.discovery import load_part
from fusescope.core.schema import complete
from fusescope.masks.common.bound import Bound, check_sizes

PARTS = ("NAME", "FORMULA", "DESCRIPTION", "PARAMETERS", "predicate")
NOT_MASKS = ("common", "counting", "layout", "sparse")


def definition(name: str) -> ModuleType:
    """The module that defines a mask (NAME, FORMULA, DESCRIPTION, PARAMETERS); ValueError lists the known
    ones."""
    package = importlib.import_module("fusescope.masks")
    try:
        return load_part(package, name, PARTS, "mask", NOT_MASKS)
    except ValueError as error:
        raise ValueError(f"{error}, and file:path.npy for a dense one") from None


@lru_cache(maxsize=1)
def _tables(module: ModuleType, given: tuple, seq_q: int, seq_k: int) -> Mapping[str, Any]:
    """The last tables that were made: BigBird's drawn blocks of a million keys take 8 s, and a page binds its
    mask several times."""
    tables = module.tables(dict(given), seq_q, seq_k)
    for table in tables.values():
        if isinstance(table, np.ndarray):
            table.flags.writeable = False  # all that are bound to the size share it
    return tables


def load(name: str, **values: Any) -> Mask:
    """The mask of that name with these parameters; what is left out takes its default when the mask is bound
    to a size.

    Raises ValueError for an unknown name or parameter, a missing one that has no default, or a value out of
    bounds.
    """
    return of_values(name, values)


def of_values(name: str, values: Mapping[str, Any], text: bool = False) -> Mask:
    """``load`` of values by name, which may be written as text where ``text`` is true."""
    checked = complete(f"mask {name}", definition(name).PARAMETERS, values, text)
    return Mask(name, tuple((key, value) for key, value in checked.items() if values.get(key) is not None))


@dataclass(frozen=True)
class Part:
    """One of the disjoint sets of (query, key) pairs that make up a mask, and in which order of rows and keys
    it is dense.

    rows, keys: in strided-permuted order modulo this number (0, m, 2m, …, 1, m + 1, …) it falls into few
    blocks; 1 = as they are. bound: the pairs, in positions.
    """

    rows: int
    keys: int
    bound: Bound


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees. Equal masks were given equal parameters; ``str`` gives the text that
    ``masks.parse`` reads."""

    name: str
    given: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> Mapping[str, Any]:
        """The parameters that were given, without defaults."""
        return MappingProxyType(dict(self.given))

    @property
    def sequences(self) -> int | None:
        """How many sequences of a batch it is written for, where it differs among them; None where all are
        alike."""
        count = getattr(definition(self.name), "sequences", None)
        return count(dict(self.given)) if count else None

    @property
    def every_row_live(self) -> bool:
        """Whether every query is known to see a key, whatever the size: itself or the first one."""
        return getattr(definition(self.name), "EVERY_ROW_LIVE", False)

    @property
    def is_formula(self) -> bool:
        """Whether its predicate alone says what is kept: it has no tables, which may take seconds to make,
        and is the same for all sequences."""
        return not hasattr(definition(self.name), "tables")

    @property
    def per_sequence(self) -> bool:
        """Whether it differs among the sequences of a batch: ``dense`` is then (batch, seq_q, seq_k)."""
        return self.sequences is not None

    def resolved(self, seq_k: int) -> Mask:
        """The same mask with every default written out for seq_k keys."""
        values = {p.name: p.default_for(seq_k) for p in definition(self.name).PARAMETERS}
        return Mask(self.name, tuple((values | dict(self.given)).items()))

    def bind(self, seq_q: int, seq_k: int | None = None) -> Bound:
        """The mask on seq_q queries and seq_k keys (as many as queries where left out), defaults resolved.

        Raises ValueError where a size is not a whole number ≥ 1 or does not fit the mask's parameters.
        """
        seq_q, seq_k = check_sizes(seq_q, seq_k)
        module = definition(self.name)
        given = self.resolved(seq_k).given
        tables = _tables(module, given, seq_q, seq_k) if hasattr(module, "tables") else {}
        return Bound(self, seq_q, seq_k, dict(given), tables, module.predicate, self.sequences)

    def parts(self, seq_q: int, seq_k: int | None = None) -> tuple[Part, ...]:
        """The parts that the mask's file says it falls apart into at this size; none where it says nothing.
        Errors as of ``bind``."""
        module = definition(self.name)
        if not hasattr(module, "parts"):
            return ()
        whole = self.bind(seq_q, seq_k)
        return tuple(
            Part(rows, keys, whole.by(formula))
            for rows, keys, formula in module.parts(SimpleNamespace(**whole.values))
        )

    def dense(self, seq_q: int, seq_k: int | None = None) -> np.ndarray:
        """bool (seq_q, seq_k), True = keep; (batch, seq_q, seq_k) where the mask differs per sequence."""
        return self.bind(seq_q, seq_k).dense()

    def __str__(self) -> str:
        kinds = {p.name: p for p in definition(self.name).PARAMETERS}
        return self.name + (
            ":" + ",".join(f"{k}={kinds[k].write(v)}" for k, v in self.given) if self.given else ""
        )

    def __repr__(self) -> str:
        return f"Mask({str(self)!r})"
