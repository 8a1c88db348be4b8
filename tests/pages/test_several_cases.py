"""The sentence of several cases: who leads, what is a tie and what is not known, and by how much."""

from compared_records import timed

from fusescope.charts import sentences
from fusescope.charts.bench import speedup
from fusescope.charts.findings import brief


def _cases(*rows):
    """Records of "sdpa" (1 ms, the baseline) and of others by name in several cases: their speed-up with its
    interval."""
    base = timed("sdpa", 1.0, (1.0, 1.0, 1.0))
    return [
        timed(r.impl, r.ms, (r.speedup.median, r.speedup.low, r.speedup.high), seq=n)
        for n, row in enumerate(rows)
        for r in (base, *(timed(name, 1 / of[0], of) for name, of in row.items()))
    ]


def test_the_baseline_is_no_winner_over_itself():
    """ "the fastest is 1.08× attention, 1.00× in the worst case", of a kernel that is slower in half of
    them."""
    records = _cases(
        {"v1_hopper": (1.3, 1.29, 1.31), "flash4": (1.06, 1.05, 1.07)},
        {"v1_hopper": (0.8, 0.79, 0.81), "flash4": (0.7, 0.69, 0.71)},
        {"v1_hopper": (0.9, 0.89, 0.91), "flash4": (0.95, 0.94, 0.96)},
    )
    assert sentences.result(records, "sdpa") == (
        "sdpa is fastest in 2 of 3 cases, v1_hopper in 1; v1_hopper is 1.02× slower than sdpa in the "
        "geometric mean, 1.25× slower in the worst case (seq=1)."
    )


def test_what_is_inconclusive_is_no_tie():
    """An interval of [0.715, 1.61] was "inconclusive" in the table and a "tie" above it."""
    records = _cases({"v1": (1.07, 0.715, 1.61)}, {"v1": (0.87, 0.86, 0.88)}, {"v1": (1.001, 0.998, 1.004)})
    said = sentences.result(records, "sdpa")
    assert said.startswith(
        "sdpa is fastest in 1 of 3 cases; sdpa and v1 tie in 1; inconclusive in 1 (sdpa or v1)"
    )
    words = [speedup.verdict(r, "sdpa") for r in records if r.impl == "v1"]
    assert words == ["inconclusive (too noisy)", "slower", "same within 1 %"]
    assert brief.in_short(records, "sdpa") == "sdpa fastest in 1 of 3, 1 tied"


def test_two_versions_of_ours_are_no_tie_with_a_peer():
    """ "8 of 8 tied" stood beside 3.61×: v5 and v6 of one kernel lead together."""
    both = {"v5_rows": (3.6, 3.5, 3.7), "v6_lines": (3.61, 3.5, 3.7)}
    records = _cases(both, both, {"v5_rows": (2.0, 1.9, 2.1), "flex": (2.01, 1.9, 2.1)})
    said = (
        "v5_rows and v6_lines, both ours, are fastest in 2 of 3 cases; inconclusive in 1 (flex or v5_rows); "
    )
    assert sentences.result(records, "sdpa").startswith(said)
    assert brief.in_short(records, "sdpa") == "ours fastest in 2 of 3"
    alone = _cases(both, {"v6_lines": (3.0, 2.9, 3.1)})
    assert brief.in_short(alone, "sdpa") == "ours fastest in 2 of 2"
    peers = {"flex": (3.6, 3.5, 3.7), "flash": (3.61, 3.5, 3.7)}
    assert brief.in_short(_cases(peers, peers), "sdpa") == "2 of 2 inconclusive"
