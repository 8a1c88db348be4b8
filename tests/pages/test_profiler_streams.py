"""A trace of another tool with three streams: how busy each was, what ran at once, and what shares are of."""

import profiles_on_disk as disk
import pytest
from drawn_page import everything, figures, said

RUN = "20261120-130000-import-dddddd"


@pytest.fixture
def foreign(profiles):
    disk.streams(profiles, RUN)


def test_the_overview_has_the_busy_share_of_each_stream_and_what_ran_at_once(draw, foreign):
    text = everything(draw("profiler", run=RUN)).replace("</td>", " ")
    for name, busy in (("stream 7", "260 µs"), ("stream 13", "250 µs"), ("stream 20", "190 µs")):
        assert busy in text.partition(name)[2][:120], name
    assert "65.0 %, 3 events" in text and "110 µs" in text.partition("kernels of several streams at once")[2]
    assert "190 µs" in text.partition("memcpy/memset beside kernels")[2]


def test_one_stream_is_no_table(draw, profiles):
    disk.trace(profiles, disk.TRACE)
    assert "several streams at once" not in everything(draw("profiler", run=disk.TRACE))


def test_launch_configurations_that_the_file_lacks_are_none(draw, foreign):
    text = everything(draw("profiler", run=RUN, view="Tables"))
    assert "launch configurations" in text and "has no grid, block, registers or shared memory" in text


def test_the_breakdown_says_what_its_shares_are_of_and_totals_have_a_unit(draw, foreign):
    at = draw("profiler", run=RUN, view="Time breakdown")
    assert "Breakdown of kernel time" in figures(at)
    assert "Shares are of the kernel time: summed over all kernels, memcpy/memset" in said(at.caption)
    text = everything(draw("profiler", run=RUN))
    assert "total_ns" not in text and "total (µs)" in text
