"""The sentence of a function of the user's own, in every state it can be in."""

import pytest
from compared_records import BASE, FAST, PROBLEM, timed, without

from fusescope.charts import sentences

MINE = "/home/me/mine.py:fast"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            timed(MINE, 0.83, (0.976, 0.970, 0.980)),
            "and 2.5 % slower: 830 µs against 810 µs of sdpa [1.02, 1.03].",
        ),
        (timed(MINE, 0.27, (3.0, 2.9, 3.1)), "and 3.00× faster: 270 µs against 810 µs of sdpa [2.90, 3.10]."),
        (
            timed(MINE, 0.81, (1.0, 0.8, 1.2)),
            "; whether it is faster is inconclusive (too noisy): 810 µs "
            "against 810 µs of sdpa, 1.00× [0.800, 1.20]: the interval includes 1.",
        ),
        (timed(MINE, 0.81), ": 810 µs."),
    ],
)
def test_an_own_function_is_said_to_be_correct_and_how_fast(record, says):
    text = sentences.result([BASE, record], "sdpa")
    assert text.startswith("mine.py:fast is correct (worst error 0.0001, as sdpa)") and says in text
    assert "fastest" not in text and "fastest" in sentences.result([BASE, record, FAST], "sdpa")


@pytest.mark.parametrize(("status", "word"), [("wrong", "wrong and was not timed"), ("crashed", "crashed")])
def test_an_own_function_without_a_time_says_why(status, word):
    text = sentences.result([BASE, without(MINE, status)], "sdpa")
    assert word in text and PROBLEM in text and "correct" not in text
