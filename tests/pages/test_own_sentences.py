"""The sentence of a function of the user's own, in every state it can be in."""

from dataclasses import replace

import pytest
from compared_records import BASE, FAST, PROBLEM, timed, without

from fusescope.charts import sentences, tables
from fusescope.core.records import Speedup, Time, Times

MINE = "/home/me/mine.py:fast"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            timed(MINE, 0.83, (0.976, 0.970, 0.980)),
            "and 2.5 % slower [2 %, 3.1 %]: 830 µs against 810 µs of sdpa.",
        ),
        (timed(MINE, 0.27, (3.0, 2.9, 3.1)), "and 3.00× faster [2.90, 3.10]: 270 µs against 810 µs of sdpa."),
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


def unsteady(record, warm=None, cold=None, speedup=None):
    """The record with times that did not converge."""
    loose = lambda ms: ms and Time(ms, ms / 3, ms * 3, 12, False)  # noqa: E731
    times = Times(eager=loose(warm or record.ms), eager_cold=loose(cold))
    speedup = Speedup("eager", *speedup, converged=False) if speedup else record.speedup
    return replace(record, time_ms=times, speedup=speedup)


def test_times_that_did_not_converge_are_said_beside_the_figure():
    """A bold "15.6× slower" was 3.74× of the same file again; its warm time was above the cold one."""
    mine = unsteady(timed(MINE, 1.0), 16.8, 3.54, (1 / 15.6, 1 / 46.2, 1 / 3.26))
    base = unsteady(BASE, 1.08)
    text = sentences.result([base, mine], "sdpa")
    assert text.endswith(
        "and 15.6× slower [3.26, 46.2] (neither time converged; its warm time is above its cold one, "
        "3.54 ms): 16.8 ms against 1.08 ms of sdpa."
    )
    assert not sentences.firm([base, mine], "sdpa") and sentences.firm([BASE, FAST], "sdpa")
    assert "15.6× slower [3.26, 46.2] (its time did not converge; " in sentences.result([BASE, mine], "sdpa")
    assert "warm time is above its cold one" in tables.note(mine, "sdpa")


def test_the_winner_and_the_next_say_that_their_times_did_not_converge():
    first = unsteady(FAST, speedup=(5.55, 3.0, 9.0))
    said = sentences.result([BASE, first], "sdpa")
    assert "5.55× sdpa [3.00, 9.00] (its time did not converge), 146 µs" in said
    assert sentences.against([BASE, first], "sdpa", "sdpa") == (
        "v5_parts, 146 µs: 5.55× [3.00, 9.00] sdpa (810 µs) (its time did not converge)"
    )
    slower = unsteady(timed("eager", 2.0), speedup=(0.0975, 0.05, 0.2))
    assert "next eager 10.3× slower (its time did not converge)." in sentences.result([BASE, slower], "sdpa")
