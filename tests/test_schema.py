"""core.schema: parameters, their rules in words, and mappings from outside completed against them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from fusescope.core.schema import REQUIRED, Parameter, check_int, complete, typed

WINDOW = Parameter("window", "int", 64, "keys kept", low=0, high=1 << 20)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (WINDOW, 3, 3),
        (WINDOW, np.int64(3), 3),
        (Parameter("x", "float", above=0), 1, 1.0),
        (Parameter("x", "bool"), np.True_, True),
        (Parameter("x", "choice", choices=(8, 16)), 16, 16),
        (Parameter("x", "ints"), 5, (5,)),
        (Parameter("x", "ints"), np.array([3, 5]), (3, 5)),
        (Parameter("x", "ints/"), [[3, 5], [4]], ((3, 5), (4,))),
        (Parameter("x", "names"), ("a", "b"), ["a", "b"]),
        (Parameter("x", "objects"), [{"a": 1}], [{"a": 1}]),
        (Parameter("x", "text", further=str.upper), "cuda", "CUDA"),
    ],
)
def test_a_value_of_its_kind_is_taken(parameter, value, expected):
    found = parameter.check(value)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("parameter", "text", "expected"),
    [
        (WINDOW, " 12 ", 12),
        (WINDOW, 12, 12),
        (Parameter("x", "text"), 7, "7"),
        (Parameter("x", "float"), "1e-3", 0.001),
        (Parameter("x", "bool"), "Yes", True),
        (Parameter("x", "bool"), "0", False),
        (Parameter("x", "choice", choices=(8, 16)), "16", 16),
        (Parameter("x", "ints"), "3+5+9", (3, 5, 9)),
        (Parameter("x", "ints/"), "3+5/4+4", ((3, 5), (4, 4))),
        (Parameter("x", "names"), "add, gemm", ["add", "gemm"]),
        (Parameter("x", "mask"), "bigbird:seed=1", "bigbird:seed=1"),
    ],
)
def test_text_is_read_and_what_is_written_is_read_again(parameter, text, expected):
    assert parameter.read(text) == expected
    if parameter.kind != "names":
        assert parameter.read(parameter.write(expected)) == expected


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        (WINDOW, -1, "window must be an integer from 0 to 1,048,576, not -1"),
        (WINDOW, 1.5, "window must be an integer from 0 to 1,048,576, not 1.5"),
        (WINDOW, True, "window must be an integer from 0 to 1,048,576, not True"),
        (WINDOW, "3", "window must be an integer from 0 to 1,048,576, not '3'"),
        (Parameter("x", "int", low=1), 0, "x must be an integer of at least 1, not 0"),
        (Parameter("x", "float", above=0), 0, "x must be a number above 0, not 0"),
        (Parameter("x", "float", above=0, high=1), 2, "x must be a number above 0 to 1, not 2"),
        (Parameter("x", "float"), float("nan"), "x must be a number, not nan"),
        (Parameter("x", "bool"), 1, "x must be true or false, not 1"),
        (Parameter("x", "text"), 7, "x must be a text, not 7"),
        (Parameter("x", "text"), None, "x must be a text, not None"),
        (
            Parameter("x", "choice", choices=("warm", "cold", "both")),
            1,
            "x must be warm, cold or both, not 1",
        ),
        (Parameter("x", "choice", choices=(1, 8)), True, "x must be 1 or 8, not True"),
        (Parameter("x", "ints"), [], "x must be a list of one or more integers such as 3+5+9, not []"),
        (Parameter("x", "ints", low=0), [3, -1], "integers of at least 0 such as"),
        (Parameter("x", "ints/"), [[3], []], "or one list per sequence such as 3+5/4+4, not"),
        (Parameter("x", "names"), "add", "x must be a list of names, not 'add'"),
        (Parameter("x", "object"), [1], "x must be an object of keys and values, not [1]"),
        (Parameter("x", "objects"), [1], "x must be a list of one or more objects of keys and values, not"),
    ],
)
def test_another_value_is_refused_with_the_rule_and_the_value(parameter, value, message):
    with pytest.raises(ValueError) as error:
        parameter.check(value)
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["x", "1.5", "", "9" * 5000])
def test_text_that_is_no_number_is_refused_in_a_short_sentence(text):
    with pytest.raises(ValueError, match=r"^window must be an integer from 0 to 1,048,576, not '") as error:
        WINDOW.read(text)
    assert len(str(error.value)) < 200


def test_a_mapping_is_completed():
    parameters = (WINDOW, Parameter("dilation", "int", None), Parameter("mask", "mask"))
    given = {"mask": "full", "window": "3"}
    assert complete("a job", parameters, given, text=True) == {"window": 3, "dilation": None, "mask": "full"}
    assert complete("a job", parameters, {"mask": "full", "window": None})["window"] == 64


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"windw": 1}, "a job takes window, mask, not windw"),
        ({"window": 1}, "a job needs mask (which keys are kept)"),
        ({"mask": None}, "a job needs mask (which keys are kept)"),
        ({"mask": "full", "window": "3"}, "window must be an integer"),
        ([1], "a job takes an object of keys and values, not [1]"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(values, message):
    parameters = (WINDOW, Parameter("mask", "mask", REQUIRED, "which keys are kept"))
    with pytest.raises(ValueError) as error:
        complete("a job", parameters, values)
    assert message in str(error.value)


def test_defaults_in_words():
    assert WINDOW.default_text == "64"
    assert Parameter("x", "bool", False).default_text == "false"
    assert Parameter("x", "int").default_text == "none"
    assert Parameter("x", "int", lambda seq: seq // 4, default_help="S / 4").default_text == "S / 4"


def test_one_integer():
    assert check_int("tile", 64, 1) == 64
    with pytest.raises(ValueError, match="tile must be an integer of at least 1, not 0"):
        check_int("tile", 0, 1)


@dataclass(frozen=True)
class _Sizes:
    each: Mapping[str, int | None] = field(metadata={"low": 0})


def test_what_is_decoded_at_once_is_what_is_built_from_json():
    text = '{"each": {"weights": null, "cache": 2}}'
    assert typed.decode(_Sizes, text) == typed.build(_Sizes, json.loads(text))
    assert typed.decode(_Sizes, '{"each": {"cache": -1}}') is None
