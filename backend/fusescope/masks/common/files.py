"""Boolean matrices from files: .npy, .npz, .csv and .mtx, none of them trusted: sizes are checked before
memory is allocated."""

from __future__ import annotations

import re
import tokenize
import warnings
import zipfile
from pathlib import Path

import numpy as np

MOST_ELEMENTS = 1 << 28
"""Most elements of a matrix from a .npz, .csv or .mtx: 16384 × 16384, 256 MiB of booleans. A .npy is as large
as its file."""
_MOST_TEXT = 1 << 29  # bytes of a text file
_UNREADABLE = (
    OSError,
    EOFError,
    SyntaxError,
    TypeError,
    tokenize.TokenError,
)  # what NumPy raises on a broken header
_TRUE, _FALSE = (b"1", b"true"), (b"0", b"false")


def read(file: Path) -> np.ndarray:
    """The array in a file, by the file's ending; bool for .csv and .mtx, whatever is stored for the others.

    Raises ValueError saying what is wrong with it. Pickled objects are never loaded; a header is believed
    only as far as the file's length bears it out.
    """
    ending = file.suffix.lower()
    if ending == ".npz":
        return _npz(file)
    if ending == ".csv":
        return _csv(_text(file))
    if ending == ".mtx":
        return _mtx(_text(file))
    return _npy(file)


def _npy(file: Path) -> np.ndarray:
    try:
        # open_memmap compares the file's length with its header before any memory is allocated, and refuses
        # objects.
        return np.lib.format.open_memmap(file, mode="r")
    except (ValueError, *_UNREADABLE) as error:
        raise ValueError(f"is not a .npy file of booleans: {_first_line(error)}") from None


def _npz(file: Path) -> np.ndarray:
    """The array named "mask", or the only one; read no further than its header says, so that a small file
    cannot grow at will."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [n for n in archive.namelist() if n.endswith(".npy")]
            chosen = "mask.npy" if "mask.npy" in names else names[0] if len(names) == 1 else None
            if chosen is None:
                listed = ", ".join(n.removesuffix(".npy") for n in names[:5])
                raise ValueError(
                    f'holds {len(names)} arrays ({listed}); a mask is the only one, or the one named "mask"'
                )
            with archive.open(chosen) as stream:
                return _stream(stream)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError, *_UNREADABLE) as error:
        raise ValueError(f"is not a .npz file of booleans: {_first_line(error)}") from None


def _stream(stream) -> np.ndarray:
    version = np.lib.format.read_magic(stream)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(
        version
    )
    if header is None:
        raise ValueError(f"holds an array of format version {version[0]}.{version[1]}; 1.0 and 2.0 are read")
    try:
        shape, fortran, dtype = header(stream)
    except ValueError as error:
        raise ValueError(f"holds an array with a broken header: {_first_line(error)}") from None
    if dtype != np.bool_:
        raise ValueError(f"holds {dtype}, not booleans (True = keep)")
    count = _checked_count(shape)
    data = stream.read(count)
    if len(data) != count or stream.read(1):
        raise ValueError(
            f"claims the shape {shape}, but holds {'fewer' if len(data) < count else 'more'} elements"
        )
    array = np.frombuffer(data, np.uint8)
    if array.size and array.max() > 1:
        raise ValueError("holds bytes that are neither 0 nor 1 as booleans")
    return array.view(bool).reshape(shape, order="F" if fortran else "C")


def _csv(data: bytes) -> np.ndarray:
    """Lines of 0 and 1 (or true and false), separated by commas, semicolons, tabs or spaces; blank lines and
    # lines count for nothing."""
    lines = [line for line in data.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")]
    if not lines:
        raise ValueError("holds no line with values")
    first = _csv_line(lines[0], 1)
    _checked_count((len(lines), len(first)))
    out = np.empty((len(lines), len(first)), bool)
    for number, line in enumerate(lines, 1):
        row = _csv_line(line, number)
        if len(row) != len(first):
            raise ValueError(f"has {len(first)} values in line 1 and {len(row)} in line {number}")
        out[number - 1] = row
    return out


def _csv_line(line: bytes, number: int) -> np.ndarray:
    line = line.strip()
    raw = np.frombuffer(line, np.uint8)
    values = raw[::2] - 48  # wraps for anything below "0", which is then above 1
    if len(raw) % 2 and (values <= 1).all() and np.isin(raw[1::2], (44, 59, 9, 32)).all():
        return values.view(bool)
    cells = [cell.strip().strip(b'"').lower() for cell in re.split(rb"\s*[,;\t]\s*|\s+", line)]
    for cell in cells:
        if cell not in _TRUE and cell not in _FALSE:
            shown = cell[:20].decode(errors="replace")
            raise ValueError(f"has {shown!r} in line {number}; values are 0 and 1, or true and false")
    return np.array([cell in _TRUE for cell in cells], bool)


def _mtx(data: bytes) -> np.ndarray:
    """Matrix Market: coordinate or array; real, integer or pattern; general or symmetric. What is not 0 is
    kept."""
    head, _, rest = data.partition(b"\n")
    words = head.decode(errors="replace").lower().split()
    if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
        raise ValueError("does not begin with a line %%MatrixMarket matrix …")
    form, field, symmetry = words[2:]
    if (
        form not in ("coordinate", "array")
        or field not in ("real", "integer", "pattern")
        or symmetry not in ("general", "symmetric")
    ):
        raise ValueError(
            f"is {form} {field} {symmetry}; supported are coordinate or array, real, integer or "
            "pattern, general or symmetric"
        )
    while rest.lstrip().startswith(b"%"):
        rest = rest.lstrip().partition(b"\n")[2]
    sizes, _, body = rest.lstrip().partition(b"\n")
    given = _numbers(sizes, "its line of sizes")
    if (
        len(given) != (3 if form == "coordinate" else 2)
        or not ((given >= 0) & (given < 2**53) & (np.floor(given) == given)).all()
    ):
        raise ValueError(
            f"has sizes {sizes[:40].decode(errors='replace').strip()!r}; it needs rows, columns "
            "and, for coordinate, entries"
        )
    rows, columns = int(given[0]), int(given[1])
    _checked_count((rows, columns))
    if symmetry == "symmetric" and rows != columns:
        raise ValueError(f"is symmetric and {rows} by {columns}")
    values = _numbers(body, "its entries")
    out = np.zeros((rows, columns), bool)
    if form == "array":
        return _mtx_array(out, values, symmetry)
    each = 2 if field == "pattern" else 3
    if len(values) != each * int(given[2]):
        raise ValueError(
            f"announces {int(given[2])} entries of {each} numbers and holds {len(values)} numbers"
        )
    entries = values.reshape(-1, each)
    if not (
        (entries[:, :2] >= 1)
        & (entries[:, :2] <= (rows, columns))
        & (np.floor(entries[:, :2]) == entries[:, :2])
    ).all():
        raise ValueError(f"has an entry outside of 1 … {rows} by 1 … {columns}")
    places = entries[:, :2].astype(np.int64) - 1
    kept = places if each == 2 else places[entries[:, 2] != 0]
    out[kept[:, 0], kept[:, 1]] = True
    return out | out.T if symmetry == "symmetric" else out


def _mtx_array(out: np.ndarray, values: np.ndarray, symmetry: str) -> np.ndarray:
    """Values column by column; of a symmetric matrix only those on and below the diagonal."""
    rows, columns = out.shape
    wanted = rows * (rows + 1) // 2 if symmetry == "symmetric" else rows * columns
    if len(values) != wanted:
        raise ValueError(f"needs {wanted} values for {rows} by {columns} and holds {len(values)}")
    if symmetry == "general":
        return (values.reshape(columns, rows).T != 0).copy()
    at = 0
    for column in range(columns):
        out[column:, column] = values[at : at + rows - column] != 0
        at += rows - column
    return out | out.T


def _numbers(text: bytes, where: str) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns of what it cannot read, and stops there
            return np.fromstring(text, np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        raise ValueError(f"has something other than numbers in {where}") from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _text(file: Path) -> bytes:
    if file.stat().st_size > _MOST_TEXT:
        raise ValueError(f"has {file.stat().st_size >> 20} MiB; at most {_MOST_TEXT >> 20} MiB are read")
    return file.read_bytes()


def _checked_count(shape) -> int:
    count = 1
    for size in shape:
        count *= int(size)
    if count > MOST_ELEMENTS:
        raise ValueError(f"has {' by '.join(map(str, shape))} elements; at most 2^28 are read")
    return count
