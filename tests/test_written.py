"""Numbers as people write sizes, wherever a parameter is read from text."""

import pytest

from fusescope import masks
from fusescope.core.schema import Parameter, written

SEQ = Parameter("seq", "int", low=1, high=1 << 20)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16384", 16384),
        (" 512 ", 512),
        ("16k", 16384),
        ("16K", 16384),
        ("1.5k", 1536),
        ("1M", 1 << 20),
        ("2**14", 16384),
        ("2 ** 14", 16384),
        ("2^14", 16384),
        ("1e4", 10_000),
        ("1.25E+3", 1250),
    ],
)
def test_a_size_is_read_as_people_write_it(text, number):
    assert SEQ.read(text) == number and type(SEQ.read(text)) is int


@pytest.mark.parametrize(
    "text",
    ["12abc", "", "abc", "1m", "1.5", "0.3k", "1e-3", "k", "--5", "16,384", "9**99", "1e99", "2*8", "０x10"],
)
def test_anything_else_is_refused_with_the_rule_and_the_text(text):
    with pytest.raises(ValueError, match="seq must be an integer from 1 to 1,048,576, not"):
        SEQ.read(text)


def test_a_power_cannot_take_a_minute():
    with pytest.raises(ValueError):
        written.whole("9**9**9")
    with pytest.raises(ValueError):
        written.whole("1e999999999")


def test_a_share_is_read_as_before():
    share = Parameter("share", "float", low=0, high=1)
    assert share.read("0.25") == 0.25 and share.read("1e-2") == 0.01
    with pytest.raises(ValueError, match="a number from 0 to 1, not nan"):
        share.read("nan")


def test_a_mask_takes_sizes_too():
    assert masks.parse("longformer:window=1k").values["window"] == 1024
