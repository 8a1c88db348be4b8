"""Codes of fusion schemes: the examples of the specification, and a brute force of other make over all 65,536
codes."""

import itertools

import numpy as np
import pytest

from fusescope.search import encoding
from fusescope.search.encoding import (
    boundaries,
    canonical,
    complement,
    encode,
    parts,
    segments,
    translate,
    value,
)

EXAMPLES = {
    "0001101010101010": "6826 0 2 1 2 3 4",
    "0000010101010101": "1365 0 1 1 4",
    "0011111010010110": "16022 0 3 2 6 9 10 13 14",
    "0101010101010101": "21845 0 0",
}
ALL = range(1 << 16)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_four_examples(code):
    line = EXAMPLES[code]
    assert translate(code) == line
    assert (
        translate(line.split()[0]) == line
        and translate(int(code, 2)) == line
        and translate(np.uint16(int(code, 2))) == line
    )
    assert encoding.bits(line.split()[0]) == code
    ends = list(map(int, line.split()[3:]))
    assert segments(code) == list(zip(ends[::2], ends[1::2]))


@pytest.mark.long
def test_translate_agrees_with_a_brute_force_on_every_code():
    """Bits by division, runs by grouping: nothing of the encoding's own text and pattern."""
    for number in ALL:
        digits = [number // 2**p % 2 for p in range(15, -1, -1)]
        words, place = [], 1
        for _, group in itertools.groupby(digits[1:]):
            length = len(list(group))
            if length > 1:
                words += [place, place + length - 1]
            place += length
        expected = " ".join(map(str, [number, digits[0], len(words) // 2, *words]))
        assert translate("".join(map(str, digits))) == expected == translate(str(number))


def _classes() -> np.ndarray:
    """A number for each code, equal exactly where two codes mean one scheme, found by merging neighbours
    under the rules: inverting bits 1-15 changes nothing; with bit 0 set neither does any of the bits 3-8, nor
    inverting bits 1-2 alone (the attention lies between them and the rest)."""
    moves = [0x7FFF] + [1 << (15 - p) for p in range(3, 9)] + [0b11 << 13]
    label = np.arange(1 << 16)
    while True:
        before = label.copy()
        for i, move in enumerate(moves):
            codes = np.arange(1 << 16) if i == 0 else np.arange(1 << 15, 1 << 16)
            label[codes] = np.minimum(label[codes], label[codes ^ move])
        if np.array_equal(before, label):
            return label


def test_canonical_is_one_code_for_each_scheme():
    label = _classes()
    chosen = np.array([int(canonical(c), 2) for c in ALL])
    assert np.array_equal(label[chosen], label), "a canonical code is one of the same scheme"
    assert len(np.unique(chosen)) == len(np.unique(label)), "and the only one"
    for flag in (False, True):
        mine = np.unique(chosen[(np.arange(1 << 16) >> 15) == flag])
        assert len(mine) == (128 if flag else 16384)
        assert [int(c, 2) for c in encoding.schemes(flag)] == mine.tolist()
        assert set(encoding.DEFAULT_RANGES[flag]) >= set(mine[: len(mine) // (1 if flag else 2)].tolist())


def test_scheme_and_cuts_are_each_others_inverse():
    for flag in (False, True):
        for code in itertools.islice(encoding.schemes(flag), 0, None, 7):
            assert encode(flag, boundaries(code)) == code
            assert canonical(complement(code)) == code and canonical(code) == code
            assert complement(complement(code)) == code and complement(code)[0] == code[0]
            pieces = parts(code)
            assert [i for piece in pieces for i in piece] == list(range(15))
            assert tuple(piece[-1] for piece in pieces[:-1]) == boundaries(code)
            if flag:
                assert range(2, 8) in pieces and (3, 8) in segments(code) and len(set(code[3:9])) == 1


def test_parts_without_attention_are_the_fused_segments_and_the_single_operators():
    for number in range(0, 1 << 15, 37):
        assert [(p.start + 1, p.stop) for p in parts(number) if len(p) > 1] == segments(number)


def test_ignored_bits_make_one_scheme():
    same = [f"1010{middle:04b}00110101" for middle in range(16)]
    assert len({c[3:9] for c in same}) == 16
    assert len(encoding.distinct(same)) == 1
    assert len(encoding.distinct(encoding.DEFAULT_RANGES[True])) == 128
    assert len(encoding.distinct(encoding.DEFAULT_RANGES[False])) == 8192
    assert encoding.distinct([6826, 6826 ^ 0x7FFF, 1365]) == [canonical(6826), canonical(1365)]
    assert all(0 in boundaries(c) for c in encoding.DEFAULT_RANGES[False]), (
        "operators 0 and 1 stay apart there"
    )


@pytest.mark.parametrize(
    "code",
    [
        "",
        "0" * 15,
        "0" * 17,
        "0011",
        "000110101010101",
        "00011010101010101",
        "000110101010101x",
        "abc",
        "65536",
        "99999",
        "100000",
        "-1",
        "+5",
        " 5",
        "5\n",
        "1_000",
        "0x10",
        "1e3",
        "3.0",
        "٣",
        "0001101010101012",
        65536,
        -1,
        10**30,
    ],
)
def test_bad_codes_are_answered_with_the_rule(code):
    for function in (translate, segments, canonical, complement, boundaries, parts):
        with pytest.raises(
            ValueError, match="exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535, not "
        ) as caught:
            function(code)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 160


@pytest.mark.parametrize("code", [None, 3.0, True, b"0001101010101010", [1, 0]])
def test_what_is_no_code_at_all(code):
    with pytest.raises(TypeError, match=f"not {type(code).__name__}"):
        translate(code)


def test_the_ends_of_the_range():
    assert value("0") == value("0" * 16) == value(0) == 0 and value("65535") == value("1" * 16) == 65535
    assert translate(0) == "0 0 1 1 15" and translate("65535") == "65535 1 1 1 15"
    assert value("10101") == 10101, "five digits are a decimal value"


@pytest.mark.parametrize(
    ("flag", "cuts", "says"),
    [
        (False, {14}, "after operators 0 to 13"),
        (False, {-1}, "after operators 0 to 13"),
        (True, set(), "after operators 1 and 7"),
        (True, {1, 4, 7}, "nowhere between"),
        (True, {1}, "after operators 1 and 7"),
    ],
)
def test_cuts_that_no_scheme_has(flag, cuts, says):
    with pytest.raises(ValueError, match=says):
        encode(flag, cuts)
