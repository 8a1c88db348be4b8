"""Of the implementations of a case some have an interval of a factor of 1.5 either way, others not: the rule
that makes the difference stands in the row and in its hover."""

from dataclasses import replace

import pytest
from compared_records import BASE, timed

from fusescope.charts import tables, verdicts
from fusescope.charts.bench import speedup
from fusescope.core.records import Speedup, Time, Times
from pages._ui.models import views

CLOSE = Speedup("eager", 0.987, 0.983, 0.991, converged=False)
FAR = Speedup("eager", 3.0, 2.9, 3.1, converged=False)


def row(found: Speedup, time: Time):
    return replace(timed("sdpa_cudnn", 0.7), speedup=found, time_ms=Times(eager=time))


@pytest.mark.parametrize(
    ("found", "time", "says"),
    [
        (
            CLOSE,
            Time(0.7, 0.69, 0.71, 90, False),
            "a ratio of 0.987× needs medians known to 1.00 %, its own is",
        ),
        (
            CLOSE,
            Time(0.7, 0.699, 0.701, 90, True),
            "known to 1.00 %; the baseline's is not, or it took another",
        ),
        (
            FAR,
            Time(0.7, 0.5, 0.9, 90, False),
            "a ratio of 3.00× needs medians known to 36.6 %, its own is known",
        ),
        (FAR, Time(0.7, 0.69, 0.71, 7, False), "7 samples are too few to converge"),
        (CLOSE, Time(0.7, 0.699, 0.701, 90, False), "sampling did not converge"),
    ],
)
def test_why_it_is_wider_than_others(found, time, says):
    one = row(found, time)
    text = verdicts.widened(one)
    assert says in text and text.startswith("a factor of 1.5 either way is left open because ")
    note = tables.readable([BASE, one], "sdpa")["note"][1]
    hover = speedup.hover(one, "sdpa")
    assert note == views.readable([BASE, one], "sdpa")["note"][1], "a whole model has the same rows"
    assert note == text and hover.count(note) == 1


def test_an_interval_as_sampled_needs_no_reason():
    one = row(replace(CLOSE, converged=True), Time(0.7, 0.699, 0.701, 90, True))
    assert verdicts.widened(one) == "" and tables.readable([BASE, one], "sdpa")["note"][1] == ""


def test_an_interval_as_wide_by_itself_is_not_said_to_be_left_open():
    one = row(Speedup("eager", 0.9, 0.5, 1.4, converged=False), Time(0.7, 0.69, 0.71, 90, False))
    assert verdicts.widened(one) == "" and tables.note(one, "sdpa") == "did not converge"
