"""Traffic between the levels of memory from ncu's counters, and its chart."""

import json

import pytest

from fusescope.analysis.profile.memory_flow import Link, links, peaks
from fusescope.charts.profile import memory_flow
from fusescope.core import paths
from fusescope.store import profile

L1, L2 = "l1tex__t_sectors_pipe_lsu_mem_global_op_", "lts__t_sectors_srcunit_tex_op_"


def rows(**values):
    return [{"metric": name, "value": value} for name, value in values.items()]


def test_sectors_are_bytes_and_atomics_are_written():
    found = links(
        rows(**{f"{L1}ld.sum": 10.0, f"{L1}st.sum": 4.0, f"{L1}red.sum": 1.0, "L1/TEX Hit Rate": 25.0})
        + rows(**{f"{L2}read.sum": 100.0, f"{L2}write.sum": 3.0, f"{L2}atom.sum": 2.0})
        + rows(**{"dram__bytes_read.sum": 640.0, "dram__bytes_write.sum": 0.0})
    )
    assert found == [Link("L1", 320, 160, 0.25), Link("L2", 3200, 160), Link("DRAM", 640, 0)]
    assert found[1].bytes == 3360


@pytest.mark.parametrize(("rate", "unit"), [(1.5, "cycle/nsecond"), (1.5e9, "hz"), (1500.0, "cycle/usecond")])
def test_peaks_of_the_caches_are_bytes_per_cycle_at_their_clock(rate, unit):
    def level(name, per_cycle, rate, unit):
        clock = {"metric": f"{name}__cycles_elapsed.avg.per_second", "value": rate, "unit": unit}
        return [*rows(**{f"{name}__t_bytes.sum.peak_sustained": per_cycle}), clock]

    half = rows(**{"lts__t_bytes.sum.peak_sustained": 1.0})
    assert peaks(level("l1tex", 128.0 * 132, rate, unit) + half) == {"L1": pytest.approx(128 * 132 * 1.5)}
    assert peaks(level("lts", -1.0, rate, unit)) == peaks(level("lts", 1.0, rate, "parsec")) == {}


def test_a_level_of_which_half_is_unknown_is_left_out():
    assert links(rows(**{f"{L2}read.sum": 100.0, "dram__bytes_read.sum": 640.0})) == []
    assert links(rows(**{f"{L2}read.sum": float("nan"), f"{L2}write.sum": 1.0})) == []
    assert links([{"metric": "n/a", "value": None}]) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chart_names_levels_bytes_and_rates(theme):
    found = [Link("L1", 0.0, 0.0, 0.0), Link("L2", 2**30, 2**20, 0.5), Link("DRAM", 2**20, 0)]
    text = json.dumps(memory_flow.flow(found, 1000.0, "<b>evil", "", theme).to_plotly_json(), default=str)
    for word in ("SM", "L1", "50.0 %", "1.00 GiB", "GB/s", "DRAM"):
        assert word in text, word
    assert "<b>evil" not in text
    assert "counts no memory traffic" in json.dumps(memory_flow.flow([], None).to_plotly_json())
    without = json.dumps(memory_flow.flow(found, None).to_plotly_json(), default=str)
    assert "GB/s" not in without


def test_recorded_counters_agree_with_ncu_on_what_l2_serves():
    """DRAM moves what L2 misses, sector by sector, where nothing is prefetched."""
    run = paths.ROOT / "profiles" / "recorded" / "20261120-214937-ncu-d9fc79"
    found = {link.level: link for link in links(profile.rows(run, "ncu_metrics"))}
    missed = found["L2"].bytes * (1 - found["L2"].hit)
    assert found["DRAM"].bytes == pytest.approx(missed, rel=0.15)
