"""Any boolean matrix as a mask: from an array, or from a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from fusescope.masks.common import files
from fusescope.masks.common.bound import Bound, check_sizes
from fusescope.masks.common.mask import Mask


class DenseMask(Mask):
    """A boolean matrix (seq_q, seq_k), or one per sequence (batch, seq_q, seq_k). Equal matrices are equal
    masks."""

    def __init__(self, array: np.ndarray, path: str | None = None):
        array = np.array(array, order="C")  # a copy: the caller's array may change
        array.setflags(write=False)
        digest = hashlib.sha256(repr(array.shape).encode())
        digest.update(array)
        digest = digest.hexdigest()[:16]
        object.__setattr__(self, "name", "file" if path else "dense")
        object.__setattr__(self, "given", (("sha256", digest),))
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "path", path)

    @property
    def sequences(self) -> int | None:
        return self.array.shape[0] if self.array.ndim == 3 else None

    @property
    def every_row_live(self) -> bool:
        return False

    @property
    def is_formula(self) -> bool:
        return False

    def resolved(self, seq_k: int) -> Mask:
        return self

    def parts(self, seq_q: int, seq_k: int | None = None) -> tuple:
        return ()

    def bind(self, seq_q: int, seq_k: int | None = None) -> Bound:
        seq_q, seq_k = check_sizes(seq_q, seq_k)
        if self.array.shape[-2:] != (seq_q, seq_k):
            rows, columns = self.array.shape[-2:]
            raise ValueError(
                f"mask {self} is {rows} queries by {columns} keys; it cannot be bound to {seq_q} by {seq_k}"
            )
        return Bound(
            self, seq_q, seq_k, {"first": seq_k - seq_q}, {"keep": self.array}, _predicate, self.sequences
        )

    def dense(self, seq_q: int, seq_k: int | None = None) -> np.ndarray:
        self.bind(seq_q, seq_k)
        return self.array.copy()

    def __eq__(self, other) -> bool:
        return isinstance(other, DenseMask) and self.given == other.given

    def __hash__(self) -> int:
        return hash(self.given)

    def __str__(self) -> str:
        return f"file:{self.path}" if self.path else f"dense:sha256={self.given[0][1]}"

    def __reduce__(self):
        return DenseMask, (self.array, self.path)


def from_dense(array) -> DenseMask:
    """A mask from a NumPy bool array, True = keep, of shape (seq_q, seq_k) or (batch, seq_q, seq_k);
    ValueError for others.

    It has no text that ``parse`` reads: save the array with numpy.save and use file:path.npy for that.
    """
    return DenseMask(_checked(np.asarray(array), "a dense mask"))


def from_file(path: str) -> DenseMask:
    """A mask from a file with such an array: .npy, .npz (the only array, or the one named mask), .csv of 0
    and 1, .mtx.

    Pickled objects are refused; sizes are checked before memory is allocated. ValueError says what is wrong
    with the file.
    """
    file = Path(path).expanduser()
    if not path or not file.is_file():
        raise ValueError(
            f"a dense mask is written file:path.npy (or .npz, .csv, .mtx); there is no file {path!r}"
        )
    try:
        array = files.read(file)
    except ValueError as error:
        raise ValueError(f"file:{path} {error}") from None
    except OSError as error:
        raise ValueError(f"file:{path} cannot be read: {error.strerror or error}") from None
    return DenseMask(_checked(array, f"file:{path}"), str(path))


def _checked(array: np.ndarray, what: str) -> np.ndarray:
    if array.dtype != np.bool_:
        raise ValueError(f"{what} holds booleans (True = keep), not {array.dtype}")
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(
            f"{what} has the shape (seq_q, seq_k) or (batch, seq_q, seq_k), none of them 0, not {array.shape}"
        )
    return array


def _predicate(q, k, p, batch):
    return p.keep[q - p.first, k] if p.keep.ndim == 2 else p.keep[batch, q - p.first, k]
