"""The sentence above a result says what the records say, in every state they can be in."""

from dataclasses import replace

import pytest
from compared_records import BASE, FAST, FEW, NEXT, SLOW, timed, without

from fusescope.analysis import rebase
from fusescope.analysis.compare.leaders import leaders, ranked
from fusescope.charts import sentences, tables, verdicts
from fusescope.charts.bench import speedup, sweep
from fusescope.charts.compared import pairs
from fusescope.charts.findings import brief
from fusescope.core.records import Speedup, Time, Times


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (
            [BASE, NEXT, FAST, without("flex", "unsupported"), without("x", "unsupported")],
            "v5_parts is correct and fastest: 5.55× sdpa [5.54, 5.61], 146 µs; next v4_scheduled 4.56×. "
            "2 of 5 unavailable.",
        ),
        (
            [SLOW, BASE],
            "sdpa, the baseline, is correct and fastest: 810 µs; next eager 10.3× slower.",
        ),
        (
            [BASE, FAST, timed("v3_hopper", 0.147, (5.52, 5.50, 5.56))],
            "v5_parts is correct and has the lowest time: 5.55× sdpa [5.54, 5.61], 146 µs; "
            "v3_hopper may be as fast, 147 µs.",
        ),
        ([BASE, FAST, without("mine", "wrong")], "1 of 3 failed the check and was not timed (mine)."),
        ([BASE, FAST, without("a", "oom"), without("b", "crashed")], "2 of 4 failed to run (a and b)."),
        ([without("a", "wrong")], "No implementation has a valid time."),
        ([timed("a", 1.0)], "a has the lowest time, 1.00 ms; sdpa has none to compare with."),
        ([], ""),
    ],
    ids=["fastest", "baseline", "tied", "wrong", "failed", "none", "no baseline", "empty"],
)
def test_one_case(records, says):
    assert says in sentences.result(records, "sdpa")
    assert bool(says) == bool(sentences.result(records, "sdpa"))


def test_what_is_not_proven_faster_is_not_called_so():
    unclear = timed("v2_rows", 0.60, (1.33, 1.07, 3.06))
    said = sentences.result([BASE, unclear], "sdpa")
    assert said.startswith("All 2 are correct; none is proven faster than sdpa: v2_rows is first with 600 µs")
    assert brief.in_short([BASE, unclear], "sdpa") == "none proven faster than sdpa"


def test_list_and_chart_agree_where_the_lowest_time_is_noise():
    """A list said "none faster" of a run whose chart showed an implementation as faster."""
    noise, sure = timed("v4_scheduled", 0.30, (2.7, 0.9, 8.0)), timed("v3_x", 0.40, (2.0, 1.9, 2.1))
    said = sentences.result([BASE, sure, noise], "sdpa")
    assert said.startswith("v3_x is correct and proven faster: 2.00× sdpa [1.90, 2.10], 400 µs; v4_scheduled")
    assert "inconclusive" in said and brief.in_short([BASE, sure, noise], "sdpa") == "v3_x 2.00× sdpa"
    assert (
        sentences.best([BASE, sure, noise], "sdpa") == 2.0 and sentences.best([BASE, noise], "sdpa") is None
    )


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("sdpa", "v5_parts, 146 µs: 5.55× [5.54, 5.61] sdpa (810 µs); next v4_scheduled, 178 µs"),
        (
            "eager",
            "v5_parts, 146 µs: 13.7× [13.4, 14.0] eager (2.00 ms); next v4_scheduled, 178 µs; "
            "5.55× [5.54, 5.61] the fastest peer, sdpa (810 µs)",
        ),
        (
            "v5_parts",
            "v5_parts, 146 µs, is the fastest; next v4_scheduled, 178 µs; "
            "5.55× [5.54, 5.61] the fastest peer, sdpa (810 µs)",
        ),
        (
            "absent",
            "v5_parts, 146 µs; next v4_scheduled, 178 µs; 5.55× [5.54, 5.61] the fastest peer, sdpa (810 µs)",
        ),
    ],
)
def test_against_another_reference_than_the_baseline(reference, says):
    assert sentences.against([BASE, SLOW, FAST, NEXT], "sdpa", reference) == says


def test_a_lead_over_the_fastest_peer_that_is_not_proven_is_none():
    peer = timed("flash4", 0.15, (5.4, 5.3, 5.7))
    near = timed("v4_scheduled", 0.148, (5.45, 5.2, 5.7))
    said = sentences.against([BASE, FAST, near, peer], "sdpa", "sdpa")
    assert "the fastest peer" not in said and "fastest peer flash4, 150 µs" in said


def test_against_names_ours_where_peers_lead():
    """Home said "flash4, 26.0 µs: 1.55× sdpa; next flex_flash, 27.6 µs", and nothing of our 30.3 µs."""
    records = [
        BASE,
        FAST,
        NEXT,
        timed("flash4", 0.1, (8.1, 8.0, 8.2)),
        timed("flex_flash", 0.12, (6.8, 6.7, 6.9)),
    ]
    said = "flash4, 100 µs: 8.10× [8.00, 8.20] sdpa (810 µs); next flex_flash, 120 µs; "
    said += "our fastest v5_parts, 146 µs"
    assert sentences.against(records, "sdpa", "sdpa") == said
    assert sentences.against(records[:4], "sdpa", "sdpa").endswith("next v5_parts, 146 µs")


def test_against_a_reference_that_leads_but_not_for_sure():
    """Home said "sdpa, 48.9 µs, is the fastest" of a run whose page said that nothing was proven."""
    noise = timed("v5_parts", 0.815, (0.994, 0.9, 1.1))
    said = "sdpa has the lowest time, 810 µs, but is not proven faster than v5_parts (815 µs)"
    assert sentences.against([BASE, noise], "sdpa", "sdpa") == said
    assert sentences.against([BASE, timed("flex", 1.62, (0.5, 0.49, 0.51)), noise], "sdpa", "sdpa") == (
        said + "; next flex, 1.62 ms"
    )
    slower = timed("v5_parts", 0.9, (0.9, 0.89, 0.91))
    assert sentences.against([BASE, slower], "sdpa", "sdpa").startswith("sdpa, 810 µs, is the fastest; next")


def test_a_sentence_of_ties_alone_begins_as_a_sentence():
    """ "two or more tie in 8 of 8 cases": no two of them stand out."""
    names = ("a", "b", "c", "d", "e")
    cases = [replace(BASE, case={"seq": n}) for n in (1, 2)]
    rows = [
        replace(timed(i, 0.8 + 0.001 * k, (1.01, 0.5, 1.9)), case=b.case)
        for b in cases
        for k, i in enumerate(names)
    ]
    known = replace(timed("z", 0.4, (2.0, 1.9, 2.1)), case=cases[0].case)
    near = [replace(timed(i, 0.4, (2.0, 1.2, 3.4)), case=cases[0].case) for i in names]
    assert sentences.result([*cases, *rows[len(names) :], known, *near], "sdpa").startswith(
        "Which is fastest is inconclusive in 2 of 2 cases; "
    )


def test_the_second_may_be_as_fast_only_where_the_intervals_over_the_baseline_leave_it_open():
    """Two that share a baseline are compared through it: their times alone tell equals apart too often."""
    second = timed("flash4", 0.25, (3.2, 3.1, 3.3))
    assert "; next flash4 3.20×" in sentences.result(
        [BASE, timed("v5_parts", 0.2, (4.0, 3.9, 4.1)), second], "sdpa"
    )
    wide = timed("v5_parts", 0.2, (4.0, 3.0, 5.0))
    assert "; flash4 may be as fast, 250 µs" in sentences.result([BASE, wide, second], "sdpa")


def test_against_gives_the_times_that_were_compared():
    """It read "v2, 5.79 µs: 2.33× eager (119 µs)": the time of a graph next to a ratio of eager calls, the
    mode that both have."""
    graph = Times(eager=Time(0.35, 0.349, 0.351, 20, True), graph=Time(0.01, 0.0099, 0.0101, 20, True))
    mine = replace(timed("v2", 0.35, (2.31, 2.3, 2.32)), time_ms=graph)
    assert sentences.against([BASE, mine], "sdpa", "sdpa") == "v2, 350 µs: 2.31× [2.30, 2.32] sdpa (810 µs)"


def test_where_quantised_weights_lead_the_model_s_own_are_named():
    eight = replace(timed("fused-int8", 0.1, (8.1, 8.0, 8.2)), extra={"quantised": {"relative_l2": 0.1}})
    own = timed("fused", 0.2, (4.05, 4.0, 4.1))
    said = sentences.against([BASE, eight, own], "sdpa", "sdpa")
    assert said == "fused-int8, 100 µs: 8.10× [8.00, 8.20] sdpa (810 µs); without quantisation fused, 200 µs"


@pytest.mark.parametrize(
    ("interval", "reference", "says"),
    [
        (
            (1.3, 0.884, 1.91),
            "sdpa",
            "v5_parts has the lowest time, 700 µs, but is inconclusive (too noisy) against sdpa (810 µs)",
        ),
        ((1.001, 0.998, 1.004), "sdpa", "v5_parts, 700 µs: same within 1 % as sdpa (810 µs)"),
        (
            (1.1, 1.09, 1.11),
            "flex",
            "v5_parts has the lowest time, 700 µs, but is inconclusive (too noisy) against flex (705 µs)",
        ),
    ],
)
def test_against_says_no_ratio_that_is_not_proven(interval, reference, says):
    """It read "v5_parts, 203 µs: (inconclusive (too noisy)) sdpa (264 µs)", and of a reference that is not
    the baseline every ratio of medians was a speed-up."""
    records = [BASE, timed("v5_parts", 0.7, interval), timed("flex", 0.705, (1.15, 1.1, 1.2))]
    assert sentences.against(records, "sdpa", reference).startswith(says)


def test_several_cases_name_the_winner_the_mean_and_the_worst_case():
    def case(seq, *records):
        return [
            timed(r.impl, r.ms, r.speedup and (r.speedup.median, r.speedup.low, r.speedup.high), seq=seq)
            for r in records
        ]

    records = [
        *case(128, BASE, timed("v5_parts", 0.4, (2.0, 1.9, 2.1))),
        *case(512, BASE, FAST, NEXT),
        *case(1024, BASE, timed("v4_scheduled", 0.1, (8.0, 7.9, 8.1))),
    ]
    assert sentences.result(records, "sdpa") == (
        "v5_parts is fastest in 2 of 3 cases, v4_scheduled in 1; the fastest is 4.46× sdpa in the geometric "
        "mean, 2.00× in the worst case (seq=128)."
    )
    assert brief.in_short(records, "sdpa") == "v5_parts fastest in 2 of 3"


@pytest.mark.parametrize(
    ("n", "speedup", "says"),
    [
        (18, Speedup("eager", 1.2, 0.9, 1.7), " [0.900, 1.70]: the interval of 18 samples includes 1"),
        (90, Speedup("eager", 1.02, 0.995, 1.03), " [0.995, 1.03]: the interval includes 1"),
        (
            90,
            Speedup("eager", 1.02, 1.005, 1.03),
            " [1.00, 1.03]: the interval ends in the band of 1 % around 1",
        ),
        (
            90,
            Speedup("eager", 1.2, 1.1, 1.3, converged=False),
            " [0.800, 1.80]: a factor of 1.5 either way is left open because a ratio of 1.20× needs medians "
            "known to 6.08 %; the baseline's is not, or it took another number of samples per turn",
        ),
        (
            7,
            Speedup("eager", 1.2, 1.1, 1.3, converged=False),
            " [0.800, 1.80]: a factor of 1.5 either way is left open because 7 samples are too few to "
            "converge",
        ),
        (
            7,
            Speedup("eager", 1.2, 0.3, 5.0, converged=False),
            " [0.300, 5.00]: the interval of 7 samples includes 1",
        ),
        (
            20,
            Speedup("eager", 1.0, 1e-3, 1e3, processes=2),
            ": 2 processes that differ this much are too few",
        ),
        (
            2,
            Speedup("eager", 1.0, 1e-3, 1e3),
            ": 2 samples that differ this much are too few for an interval",
        ),
        (7, Speedup("eager", 60.0, 59.0, 61.0, converged=False), ""),
        (18, Speedup("eager", 1.1, 1.02, 1.2, converged=True), ""),
        (18, Speedup("eager", 1.2, 1.19, 1.21), ""),
    ],
)
def test_why_it_is_inconclusive(n, speedup, says):
    times = Times(eager=Time(0.7, 0.69, 0.71, n, True))
    mine = replace(timed("v5_parts", 0.7), speedup=speedup, time_ms=times)
    assert verdicts.because(mine) == says[says.find(":") :] or says.startswith(": 2 processes")
    assert "unknown" not in sentences.result([BASE, mine], "sdpa")
    for sentence in (sentences.against([BASE, mine], "sdpa", "sdpa"), sentences.result([BASE, mine], "sdpa")):
        assert says in sentence and ("inconclusive" in sentence) == bool(says)


def test_a_case_that_is_inconclusive_is_won_by_nobody():
    unclear = timed("eager", 0.9, (0.9, 0.3, 2.8), seq=128)
    noise = [timed("sdpa", 0.81, (1.0, 1.0, 1.0), seq=128), unclear]
    twice = [*noise, *(replace(r, case={"seq": 512}) for r in noise)]
    assert sentences.result(twice, "sdpa") == "None is proven faster than sdpa in any of 2 cases."
    assert brief.in_short(twice, "sdpa") == "none proven faster than sdpa"
    said = sentences.result([*noise, BASE, FAST], "sdpa")
    assert said.startswith("v5_parts is fastest in 1 of 2 cases; inconclusive in 1 (eager or sdpa);")
    assert brief.in_short([*noise, BASE, FAST], "sdpa") == "v5_parts fastest in 1 of 2"


def test_who_is_fastest_does_not_depend_on_what_is_compared_with():
    """Of one run it read "v2 is fastest in 3 of 6 cases, compile in 3" against eager, and "compile is fastest
    in 3, v2 in 1" against compile: a lower median beside a slower baseline counted as proof."""

    def case(rows, compile_ms, v2_ms):
        base = timed("eager", 1.0, (1.0, 1.0, 1.0), rows=rows)
        mine = [("compile", compile_ms), ("v2", v2_ms)]
        return [base, *(timed(n, ms, (1 / ms, 0.99 / ms, 1.01 / ms), rows=rows) for n, ms in mine)]

    records = [*case(1, 0.1, 0.1001), *case(2, 0.1, 0.0999), *case(3, 0.1, 0.12), *case(4, 0.13, 0.1)]
    counted = "compile is fastest in 1 of 4 cases, v2 in 1; inconclusive in 2 (compile or v2); "
    for over in ("eager", "compile", "v2"):
        shown = rebase.rebased(records, over)
        assert sentences.result(shown, over, records).startswith(counted), over
    assert brief.in_short(records, "eager") == "compile fastest in 1 of 4"
    one = sentences.result(case(1, 0.1, 0.1001), "eager")
    assert "compile is correct and has the lowest time: 10.0×" in one and "v2 may be as fast" in one


def test_what_was_compared_in_pairs_is_proven_by_the_pairs_as_well():
    """Medians of few rounds are narrower than their ratio over the rounds: the baseline is then tied."""
    unclear = timed("v2", 0.5, (1.62, 0.9, 2.9))
    assert [r.impl for r in leaders([BASE, unclear])] == ["v2", "sdpa"]
    assert [r.impl for r in leaders([BASE, timed("v2", 0.5, (1.62, 1.6, 1.64))])] == ["v2"]
    assert [r.impl for r in leaders([BASE, timed("v2", 0.9, (0.9, 0.3, 2.8))])] == ["sdpa", "v2"]


def test_a_mean_says_over_how_many_cases_it_is():
    """sdpa takes no score expression: the mean is over the cases in which it has a time."""
    plain = [BASE, FAST]
    scored = [without("sdpa", "unsupported", score="x"), timed("v5_parts", 0.2, score="x")]
    said = sentences.result([*plain, *scored], "sdpa")
    assert "5.55× sdpa in the geometric mean of the one case in which sdpa has a time, 5.55× in the" in said


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (
            timed("/a/my_norms.py:soft", 2.66, (0.305, 0.300, 0.310)),
            "my_norms.py:soft 3.28× slower than sdpa",
        ),
        (
            timed("/a/my_norms.py:soft", 0.83, (0.976, 0.970, 0.980)),
            "my_norms.py:soft 2.5 % slower than sdpa",
        ),
        (timed("v5_parts", 0.81, (1.0, 0.998, 1.002)), "v5_parts same within 1 % as sdpa"),
        (timed("v1_rows", 1.62, (0.5, 0.49, 0.51)), "v1_rows 2.00× slower than sdpa"),
        (timed("v1_rows", 0.9, (0.9, 0.3, 2.8)), "none proven faster than sdpa"),
        (timed("/a/mine.py:f", 0.9, (0.9, 0.3, 2.8)), "mine.py:f not proven faster than sdpa"),
    ],
)
def test_a_list_says_what_the_sentence_of_the_page_says(record, says):
    """The list called a function 3.28× slower than eager "none proven faster than eager"."""
    assert brief.in_short([BASE, record], "sdpa") == says


def test_order_follows_the_times_that_are_shown():
    """An old run's paired ratio may contradict the medians: nothing stands above what took less time."""
    slower_median = timed("v5_parts", 0.20, (5.55, 5.54, 5.61))
    assert [r.impl for r in ranked([BASE, slower_median, NEXT])] == [
        "v4_scheduled",
        "v5_parts",
        "sdpa",
    ]


def test_an_interval_that_is_unknown_is_not_shown_but_said():
    """ "[unknown]" told a reader nothing, and its whisker was a black line across the plot."""
    few = replace(FEW, time_ms=Times(eager=Time(0.5, 0.3, 0.9, 10, False)))
    why = "10 samples that differ this much are too few for an interval"
    assert sentences.result([BASE, few], "sdpa") == (
        f"All 2 are correct; none is proven faster than sdpa: fast is first with 500 µs, inconclusive "
        f"(too noisy): {why}."
    )
    own = replace(few, impl="/a/mine.py:rms")
    assert sentences.result([BASE, own], "sdpa").endswith(
        f"whether it is faster is inconclusive (too noisy): 500 µs against 810 µs of sdpa, 1.62×: {why}."
    )
    assert why in speedup.hover(few, "sdpa")
    drawn = speedup.bars([BASE, few], "sdpa")
    assert "? inconclusive, no interval · 500 µs" in drawn.to_json().replace("\\u00b5", "µ").replace(
        "\\u00b7", "·"
    )
    assert not [t for t in drawn.data if t.type == "scatter" and t.y[0] == "fast"], "no whisker"
    low, high = drawn.layout.xaxis.range
    assert high - low < 1, "the axis has no room for what is not drawn"
    assert tables.readable([BASE, few], "sdpa")["95 % interval (×)"][1] is None
    assert tables.why([BASE, few], "sdpa")(1, "95 % interval (×)") == why
    curve = sweep.curves([BASE, few, replace(few, case={"seq": 1024})], "seq", "speed-up", "sdpa")
    line = next(t for t in curve.data if t.name == "fast")
    assert set(line.error_x.array or ()) <= {0} and set(line.error_y.array) == {0}
    assert pairs.headline(few.speedup) == "? inconclusive (too noisy), no interval"


def test_what_is_too_noisy_claims_nothing():
    fast = timed("v4_scheduled", 0.3, (2.7, 0.9, 8.0))
    assert sentences.noisy([BASE, fast], "sdpa") and not sentences.noisy([BASE, NEXT], "sdpa")
    text = sentences.result([BASE, fast], "sdpa")
    assert text.startswith(
        "All 2 are correct; none is proven faster than sdpa: v4_scheduled is first with 300 µs, inconclusive"
    )
    assert "may be as fast" not in text
    slow = timed("v1_rows", 0.9, (0.9, 0.3, 2.8))
    assert sentences.noisy([BASE, slow], "sdpa")
    assert sentences.result([BASE, slow], "sdpa").startswith(
        "All 2 are correct; none is proven faster than sdpa, the baseline"
    )
    assert not sentences.noisy([], "sdpa")


def test_a_second_that_is_inconclusive_has_no_brackets_in_brackets():
    """ "sdpa_cudnn may be as fast, (inconclusive (too noisy))"."""
    first, second = timed("v5_parts", 0.2, (4.0, 3.0, 5.0)), timed("flash4", 0.21, (3.8, 0.9, 6.0))
    said = sentences.result([BASE, first, second], "sdpa")
    assert said.endswith("next flash4 (inconclusive, too noisy).")


def test_home_says_too_that_the_second_may_be_as_fast():
    """Home said "next flash4" where Kernels said that none is proven faster than it."""
    first, second = timed("v5_parts", 0.2, (4.0, 3.0, 5.0)), timed("flash4", 0.25, (3.2, 3.1, 3.3))
    said = sentences.against([BASE, first, second], "sdpa", "sdpa")
    assert said.endswith("flash4 may be as fast, 250 µs") and "next" not in said
    sure = timed("v5_parts", 0.2, (4.0, 3.9, 4.1))
    assert "; next flash4, 250 µs" in sentences.against([BASE, sure, second], "sdpa", "sdpa")
