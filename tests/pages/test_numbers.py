"""Numbers as people read them."""

import math

import pytest

from fusescope.charts import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1,230"),
        (2_089_123.0, "2,090,000"),
        (-999_999_999.0, "-1.00e+09"),
        (0.01234, "0.0123"),
        (9.999, "10.0"),
        (0.0999, "0.0999"),
        (1.23e-7, "1.23e-07"),
        (0, "0"),
        (-4.567, "-4.57"),
        (None, "n/a"),
        (math.nan, "n/a"),
        (math.inf, "∞"),
    ],
)
def test_three_significant_digits(value, text):
    assert numbers.three(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.954, "0.95"), (0.0954, "0.0954"), (1.28, "1.28"), (10.42, "10.4")]
)
def test_brief_fits_a_narrow_cell(value, text):
    assert numbers.brief(value) == text


@pytest.mark.parametrize(
    ("ms", "unit"),
    [([0.003, 0.3], "µs"), ([0.9, 40], "ms"), ([5000.0, 9000.0], "s"), ([None], "ms"), ([], "ms")],
)
def test_one_unit_for_a_column(ms, unit):
    assert numbers.time_unit(ms)[0] == unit


def test_the_unit_and_its_factor_belong_together():
    assert (
        numbers.time(0.0123) == "12.3 µs"
        and numbers.time(12.3) == "12.3 ms"
        and numbers.time(1234.0) == "1.23 s"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (40, "40 s"), (200, "3 min 20 s"), (120, "2 min"), (7500, "2 h 5 min"), (None, "n/a")],
)
def test_durations(seconds, text):
    assert numbers.seconds(seconds) == text


def test_bytes_are_binary():
    assert [numbers.size(n) for n in (0, 512, 1 << 10, 233472, 6 << 20, None)] == [
        "0 B",
        "512 B",
        "1.00 KiB",
        "228 KiB",
        "6.00 MiB",
        "n/a",
    ]
