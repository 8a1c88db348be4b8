"""Names, values and texts of masks; dense matrices from arrays and files; what is refused, and how it is
said."""

import pickle

import numpy as np
import pytest

from fusescope import masks
from fusescope.masks import bigbird
from fusescope.masks.common.draw import splitmix64


def test_splitmix64_known_answers():
    """First outputs of the generator at these states, as published test vectors give them."""
    assert int(splitmix64(0)) == 0xE220A8397B1DCDAF
    assert int(splitmix64(1234567)) == 6457827717110365317
    assert int(splitmix64(0x9E3779B97F4A7C15)) == 0x6E789E6AA1B965F4  # the second output from state 0


@pytest.mark.parametrize(
    "text",
    [
        "full",
        "causal",
        "bigbird:window=64,seed=1",
        "document:lengths=3+5+9,causal=true",
        "document:lengths=3+5/4+4",
        "padding:lengths=3+5+9",
        "random:density=0.25",
        "sliding_window:left=3,right=0",
    ],
)
def test_text_round_trip(text):
    mask = masks.parse(text)
    assert str(mask) == text
    assert masks.parse(str(mask)) == mask and hash(masks.parse(str(mask))) == hash(mask)
    assert pickle.loads(pickle.dumps(mask)) == mask


def test_resolved_text_stands_for_the_same_mask():
    for name in masks.names():
        mask = masks.load(name, **({"lengths": [100, 3]} if name == "padding" else {}))
        again = masks.parse(str(mask.resolved(100)))
        assert np.array_equal(mask.dense(100), again.dense(100))


def test_order_of_parameters_does_not_matter():
    assert masks.parse("bigbird:seed=1,window=64") == masks.load("bigbird", window=64, seed=1)


def test_masks_are_immutable():
    mask = masks.load("causal")
    with pytest.raises(AttributeError):
        mask.name = "full"
    with pytest.raises(TypeError):
        masks.load("strided", window=3).values["window"] = 4


@pytest.mark.parametrize(
    "text,says",
    [
        ("bigbrd", "unknown mask 'bigbrd'; did you mean bigbird?"),
        ("", "unknown mask ''; known: bigbird"),
        ("layout", "unknown mask 'layout'"),
        ("_draw", "unknown mask '_draw'"),
        ("causal:window=3", "mask causal takes no parameters, not window"),
        (
            "bigbird:windows=3",
            "mask bigbird takes window, global_tokens, random_blocks, block, seed, not windows",
        ),
        ("bigbird:window", "'window' is not of the form key=value"),
        ("bigbird:", "ends with a colon"),
        ("bigbird:window=3,window=4", "gives window twice"),
        ("bigbird:window=x", "window must be an integer from 0 to 1,048,576, not 'x'"),
        ("bigbird:window=-1", "window must be an integer from 0 to 1,048,576, not -1"),
        ("bigbird:window=1.5", "window must be an integer"),
        ("dilated:dilation=0", "dilation must be an integer from 1 to"),
        ("random:density=1.5", "density must be a number from 0 to 1, not 1.5"),
        ("random:density=nan", "density must be a number from 0 to 1"),
        ("document:causal=maybe", "causal must be true or false, not 'maybe'"),
        ("document:lengths=3+x", "such as 3+5+9, or one list per sequence such as 3+5/4+4, not '3+x'"),
        ("padding", "mask padding needs lengths"),
        ("file:", "there is no file ''"),
        ("file:/nowhere/m.npy", "there is no file '/nowhere/m.npy'"),
    ],
)
def test_wrong_texts_are_explained(text, says):
    with pytest.raises(ValueError) as error:
        masks.parse(text)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name,values,says",
    [
        ("bigbird", {"window": True}, "window must be an integer"),
        ("bigbird", {"window": "3"}, "window must be an integer"),
        ("random", {"density": "0.1"}, "density must be a number"),
        ("document", {"causal": 1}, "causal must be true or false"),
        ("document", {"lengths": []}, "a list of one or more integers"),
        ("padding", {"lengths": [3, -1]}, "lengths must be a list of one or more integers from 0"),
        ("random", {"seed": 1 << 24}, "seed must be an integer from 0 to 16,777,215"),
    ],
)
def test_wrong_values_are_explained(name, values, says):
    with pytest.raises(ValueError) as error:
        masks.load(name, **values)
    assert says in str(error.value)


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (-1, 4), (4, 1 << 21), (2.5, 4), (True, 4), ("4", 4)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match=r"seq_[qk] must be an integer from 1 to 1,048,576"):
        masks.load("causal").bind(*sizes)


def test_parameters_that_do_not_fit_the_size():
    with pytest.raises(ValueError, match="at most its 8 positions together, not 9"):
        masks.load("document", lengths=[4, 5]).dense(8)
    with pytest.raises(ValueError, match="at most the 8 keys, not 9"):
        masks.load("padding", lengths=[4, 9]).dense(8)


def test_predicate_of_a_mask_per_sequence_needs_the_sequence():
    bound = masks.load("padding", lengths=[1, 3]).bind(4, 4)
    with pytest.raises(ValueError, match="predicate needs batch"):
        bound.predicate(0, 0)
    assert bool(bound.predicate(0, 2, 1)) and not bool(bound.predicate(0, 2, 0))


def test_dense_matrix_and_file(tmp_path):
    array = np.random.default_rng(0).random((5, 9)) < 0.5
    mask = masks.from_dense(array)
    kept = array.copy()
    array[:] = False
    assert np.array_equal(mask.dense(5, 9), kept)
    assert (
        mask == masks.from_dense(kept)
        and hash(mask) == hash(masks.from_dense(kept))
        and mask != masks.from_dense(array)
    )
    np.save(tmp_path / "my,mask.npy", kept)
    text = f"file:{tmp_path}/my,mask.npy"
    loaded = masks.parse(text)
    assert str(loaded) == text and loaded == mask and np.array_equal(loaded.dense(5, 9), kept)
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    bound = loaded.bind(5, 9)
    assert np.array_equal(bound.predicate(np.arange(4, 9)[:, None], np.arange(9)[None]), kept)
    with pytest.raises(ValueError, match="5 queries by 9 keys; it cannot be bound to 6 by 9"):
        loaded.bind(6, 9)
    batch = masks.from_dense(np.stack([kept, ~kept]))
    assert batch.per_sequence and batch.dense(5, 9).shape == (2, 5, 9)


def test_files_that_hold_no_mask(tmp_path):
    cases = {
        "floats.npy": np.zeros((2, 2)),
        "line.npy": np.zeros(4, bool),
        "empty.npy": np.zeros((0, 4), bool),
    }
    for name, array in cases.items():
        np.save(tmp_path / name, array)
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("not an array")
    header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    (tmp_path / "huge.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n"
    )
    for file in tmp_path.iterdir():
        with pytest.raises(ValueError, match="file:"):
            masks.parse(f"file:{file}")
    with pytest.raises(ValueError, match="booleans"):
        masks.from_dense([[1, 0]])


def test_tables_of_the_last_size_are_made_once_and_nobody_writes_into_them(monkeypatch):
    made, tables = [], bigbird.tables
    monkeypatch.setattr(bigbird, "tables", lambda *about: made.append(about[1:]) or tables(*about))
    mask = masks.load("bigbird", seed=101)
    first = mask.bind(300).dense()
    assert np.array_equal(mask.bind(300).dense(), first) and made == [(300, 300)]
    other = masks.load("bigbird", seed=102).bind(300)
    assert not np.array_equal(other.dense(), first) and len(made) == 2
    with pytest.raises(ValueError, match="read-only"):
        other._tables["drawn"][0, 0] = True
