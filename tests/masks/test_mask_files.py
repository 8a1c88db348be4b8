"""Boolean matrices from .npy, .npz, .csv and .mtx: the same mask from each, and every kind of wrong or
hostile file in one sentence."""

import io
import struct
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from fusescope import masks
from fusescope.masks.common import files as _files


def written(folder, kept):
    """The matrix in every format, by the libraries that people use."""
    np.save(folder / "m.npy", kept)
    np.savez(folder / "m.npz", kept)
    np.savez_compressed(folder / "named.npz", mask=np.asfortranarray(kept), other=np.ones(3))
    np.savetxt(folder / "m.csv", kept, fmt="%d", delimiter=",")
    np.savetxt(folder / "spaces.csv", kept, fmt="%3d", delimiter=" ")
    text = "# a comment\r\n" + "\r\n".join("; ".join(str(bool(x)) for x in row) for row in kept) + "\r\n\r\n"
    (folder / "words.csv").write_text(text)
    scipy.io.mmwrite(
        folder / "pattern.mtx", scipy.sparse.coo_array(kept), field="pattern", symmetry="general"
    )
    scipy.io.mmwrite(folder / "real.mtx", scipy.sparse.coo_array(kept * 0.5), comment="two\nlines")
    scipy.io.mmwrite(folder / "dense.mtx", kept.astype(int))
    return sorted(folder.iterdir())


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 11), (30, 30)])
@pytest.mark.parametrize("density", [0, 0.3, 1])
def test_every_format_gives_the_same_mask(tmp_path, rows, columns, density):
    kept = np.random.default_rng(rows).random((rows, columns)) < density
    files = written(tmp_path, kept)
    assert len(files) == 9
    for file in files:
        mask = masks.parse(f"file:{file}")
        assert np.array_equal(mask.dense(rows, columns), kept), file.name
        assert np.array_equal(mask.bind(rows, columns).block(0, rows), kept), "as pictures and tiles read it"
        assert mask == masks.from_dense(kept) and str(mask) == f"file:{file}"


def test_symmetric_matrix_market(tmp_path):
    kept = np.random.default_rng(1).random((9, 9)) < 0.2
    kept |= kept.T
    scipy.io.mmwrite(
        tmp_path / "sparse.mtx", scipy.sparse.coo_array(kept), field="pattern", symmetry="symmetric"
    )
    scipy.io.mmwrite(tmp_path / "dense.mtx", kept.astype(int), symmetry="symmetric")
    for file in tmp_path.iterdir():
        assert "symmetric" in file.read_text().splitlines()[0]
        assert np.array_equal(masks.from_file(str(file)).dense(9), kept), file.name


def test_a_mask_per_sequence_from_npz(tmp_path):
    kept = np.random.default_rng(1).random((2, 3, 4)) < 0.5
    np.savez(tmp_path / "m.npz", kept)
    assert masks.from_file(str(tmp_path / "m.npz")).sequences == 2


MM = "%%MatrixMarket matrix coordinate pattern general\n"
TEXTS = {
    "empty.csv": ("", "no line"),
    "comment.csv": ("# nothing\n\n", "no line"),
    "two.csv": ("0,1\n0,2\n", "'2' in line 2"),
    "ragged.csv": ("0,1\n0,1,1\n", "2 values in line 1 and 3 in line 2"),
    "half.csv": ("0.5,1\n", "'0.5' in line 1"),
    "header.csv": ("a,b\n0,1\n", "'a' in line 1"),
    "binary.csv": ("\x00\x01\x02", "in line 1"),
    "empty.mtx": ("", "does not begin"),
    "other.mtx": ("%%MatrixMarket vector coordinate real general\n3 1\n", "does not begin"),
    "complex.mtx": ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 0 1\n", "complex"),
    "no-size.mtx": (MM + "% only comments\n", "sizes"),
    "words.mtx": (MM + "2 2 1\none two\n", "numbers in its entries"),
    "outside.mtx": (MM + "2 2 1\n3 1\n", "outside"),
    "zero.mtx": (MM + "2 2 1\n0 1\n", "outside"),
    "fraction.mtx": (MM + "2 2 1\n1.5 1\n", "outside"),
    "nan.mtx": (MM + "2 2 1\nnan 1\n", "outside"),
    "short.mtx": (MM + "2 2 2\n1 1\n", "announces 2"),
    "infinite.mtx": (MM + "inf 2 1\n1 1\n", "sizes"),
    "negative.mtx": (MM + "-2 2 1\n1 1\n", "sizes"),
    "huge.mtx": (MM + "1000000 1000000 1\n1 1\n", "at most 2"),
    "beyond.mtx": (MM + f"{10**30} 1 1\n1 1\n", "sizes"),
    "none.mtx": (MM + "0 0 0\n", "none of them 0"),
    "oblong.mtx": ("%%MatrixMarket matrix array real symmetric\n2 3\n1\n", "symmetric and 2 by 3"),
    "few.mtx": ("%%MatrixMarket matrix array real general\n2 2\n1\n", "needs 4 values"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_wrong_texts_are_refused_in_one_sentence(tmp_path, name):
    text, says = TEXTS[name]
    (tmp_path / name).write_text(text)
    refused(tmp_path / name, says)


def refused(file, says):
    with pytest.raises(ValueError, match=says) as caught:
        masks.parse(f"file:{file}")
    assert str(caught.value).startswith(f"file:{file} ") and "\n" not in str(caught.value)


def header(shape, descr="|b1"):
    """The head of a .npy file that claims a shape."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


class Harm:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def hostile():
    objects = io.BytesIO()
    np.save(objects, np.array([Harm()], dtype=object), allow_pickle=True)
    return {
        "objects": ({"a.npy": objects.getvalue()}, "object"),
        "several": ({"a.npy": header((1, 1)) + b"\1", "b.npy": header((1, 1)) + b"\1"}, "holds 2 arrays"),
        "no array": ({"a.txt": b"hello"}, "holds 0 arrays"),
        "floats": ({"a.npy": header((1, 1), "<f8") + bytes(8)}, "not booleans"),
        "claims more": ({"a.npy": header((4, 4)) + b"\1"}, "fewer elements"),
        "holds more": ({"a.npy": header((1, 1)) + bytes(1 << 16)}, "more elements"),
        "claims far too much": ({"a.npy": header((1 << 40, 1 << 40)) + b"\1"}, "at most 2"),
        "claims what overflows": ({"a.npy": header((1 << 32, 1 << 32)) + b"\1"}, "at most 2"),
        "not booleans inside": ({"a.npy": header((1, 2)) + b"\1\7"}, "neither 0 nor 1"),
        "no header": ({"a.npy": b"hello"}, "magic"),
        "bad header": ({"a.npy": b"\x93NUMPY\x01\x00\x05\x00{'a':"}, "broken header|not a .npz"),
        "line": ({"a.npy": header((3,)) + bytes(3)}, r"\(3,\)"),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_archives_are_refused_and_never_unpickled(tmp_path, name):
    content, says = hostile()[name]
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            archive.writestr(member, data)
    refused(tmp_path / "m.npz", says)


def test_an_archive_that_grows_is_not_unpacked(tmp_path, monkeypatch):
    """A claim within the limit is read as far as it goes and no further: 64 MB of zeros behind it stay
    packed."""
    read = []
    real = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: read.append(n) or real(self, n))
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header((2, 2)) + bytes(1 << 26))
    assert (tmp_path / "m.npz").stat().st_size < 1 << 17
    refused(tmp_path / "m.npz", "more elements")
    assert read and all(0 < n < 1 << 12 for n in read)


def test_other_wrong_files(tmp_path, monkeypatch):
    (tmp_path / "text.npz").write_text("hello")
    refused(tmp_path / "text.npz", "not a .npz")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04" + bytes(30))
    refused(tmp_path / "cut.npz", "not a .npz")
    (tmp_path / "big.csv").write_text("0,1\n" * 10)
    monkeypatch.setattr(_files, "_MOST_TEXT", 20)
    refused(tmp_path / "big.csv", "at most")
    monkeypatch.setattr(_files, "_MOST_TEXT", 1 << 20)
    monkeypatch.setattr(_files, "MOST_ELEMENTS", 19)
    refused(tmp_path / "big.csv", "10 by 2")
    with pytest.raises(ValueError, match=r"\.npz, \.csv, \.mtx"):
        masks.parse("file:/nowhere/m.csv")


def test_the_limit_lets_the_longest_sequence_through():
    assert _files.MOST_ELEMENTS >= 16384**2
