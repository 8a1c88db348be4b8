"""The laws of scaling, the cost of collectives and the overlap of intervals: known inputs, known answers."""

import math
import random

import pytest

from fusescope.analysis.scaling import compute, laws, links, overlap


@pytest.mark.parametrize("serial", (0.0, 0.07, 0.5, 1.0, 1.3))
@pytest.mark.parametrize(
    "law, speedup",
    [("amdahl", lambda s, n: 1 / (s + (1 - s) / n)), ("gustafson", lambda s, n: s + (1 - s) * n)],
)
def test_a_law_finds_its_own_serial_share(law, speedup, serial):
    counts = (2, 3, 4) if law == "gustafson" and serial > 1 else (2, 3, 4, 8)
    points = [(n, s) for n in (1, *counts) if (s := speedup(serial, n)) > 0]
    found = laws.fit(law, points)
    assert found.serial == pytest.approx(serial, abs=1e-12)
    assert found.low <= serial + 1e-9 and found.high >= serial - 1e-9 and found.high - found.low < 1e-6
    assert all(abs(p.residual) < 1e-9 for p in found.points)
    assert found.speedup(16) == pytest.approx(speedup(serial, 16))


def test_the_interval_holds_the_serial_share_under_noise():
    draw, held, runs = random.Random(3), 0, 200
    for _ in range(runs):
        # noise on what the fit is linear in, so that Student's interval is exact
        points = [(n, 1 / (1 / n + 0.1 * (1 - 1 / n) + draw.gauss(0, 0.004))) for n in (2, 3, 4, 6, 8, 12)]
        found = laws.fit("amdahl", points)
        held += found.low <= 0.1 <= found.high
    assert 0.90 <= held / runs <= 0.99


def test_too_few_points_are_said():
    one = laws.fit("amdahl", [(1, 1.0), (2, 1.8)])
    assert (
        one.low is None and one.high is None and "too few" in one.note and one.serial == pytest.approx(1 / 9)
    )
    assert laws.fit("amdahl", [(1, 1.0)]).serial is None
    assert laws.fit("amdahl", [(2, 1.8), (4, 3.0), (8, 5.0)]).note is None
    for wrong in ([(2, 0.0)], [(2, math.nan)]):
        with pytest.raises(ValueError, match="positive"):
            laws.fit("amdahl", wrong)
    with pytest.raises(ValueError, match="laws are amdahl and gustafson"):
        laws.fit("moore", [(2, 1.0)])


@pytest.mark.parametrize("call", [0.0, 4e-5])
@pytest.mark.parametrize("collective", links.COLLECTIVES)
def test_a_link_is_found_again(collective, call):
    alpha, beta = 7e-6, 90e9
    if collective == "send_recv":  # one step, whoever takes part
        alpha, call = alpha + call, 0.0

    def seconds(n, size):
        steps, volume = links.coefficients(collective, n)
        return call + steps * alpha + volume * size / beta

    points = [(n, size, seconds(n, size)) for n in (2, 4) for size in (4096, 1 << 16, 1 << 20, 1 << 24)]
    found = links.fit(collective, points)
    assert found.alpha_s == pytest.approx(alpha) and found.beta_bytes_per_s == pytest.approx(beta)
    assert found.call_s == pytest.approx(call, abs=1e-12)
    assert found.worst < 1e-6 and found.seconds(1, 1 << 20) == 0
    assert found.seconds(64, 1 << 20) == pytest.approx(seconds(64, 1 << 20))
    assert links.of_json([found.to_json()]) == {collective: found}
    earlier = {name: value for name, value in found.to_json().items() if name != "call_s"}
    assert links.of_json([earlier])[collective].call_s == 0
    assert links.fit(collective, [p for p in points if p[0] == 2]).call_s == 0, "as one with the steps"


def test_a_link_gives_what_was_measured_and_between_a_scaled_fit():
    """A protocol that changes with the size: no line goes through its times."""
    took = {4096: 0.02, 1 << 20: 0.05, 1 << 24: 0.09, 1 << 28: 0.9}
    points = [{"collective": "all_reduce", "ranks": 2, "bytes": s, "ms": ms} for s, ms in took.items()]
    line = links.fit("all_reduce", [(2, size, ms / 1e3) for size, ms in took.items()])
    assert line.worst > 0.2
    found = links.of_json([line.to_json()], points)["all_reduce"]
    for size, ms in took.items():
        assert found.seconds(2, size) == pytest.approx(ms / 1e3)
        near = found.seconds(2, size * 1.001)
        assert near == pytest.approx(ms / 1e3, rel=0.01), "no jump beside a measured size"
    far = found.seconds(16, 1 << 24) / line.seconds(16, 1 << 24)
    assert far == pytest.approx(0.09e-3 / line.seconds(2, 1 << 24)), "other ranks: the same factor"
    assert found.to_json() == line.to_json()
    assert links.of_json([line.to_json()])["all_reduce"].seconds(2, 4096) == line.seconds(2, 4096)
    for wrong in ({"ranks": 1}, {"ms": 0.0}, {"ms": math.nan}, {"bytes": None}):
        with pytest.raises(ValueError, match=r"collective|positive"):
            links.of_json([line.to_json()], [points[0] | wrong])


def test_bad_links_are_refused():
    with pytest.raises(ValueError, match="two sizes or more"):
        links.fit("all_reduce", [(2, 64, 1e-6), (4, 64, 1e-6)])
    with pytest.raises(ValueError, match="positive"):
        links.fit("all_reduce", [(2, 64, 0.0), (2, 128, 1e-6)])
    for wrong in ([{"collective": "dance"}], [{}], [3]):
        with pytest.raises(ValueError, match=r"link|collectives"):
            links.of_json(wrong)


def test_compute_is_what_was_measured_and_between_a_fit():
    def ms(tp, batch):
        return 0.5 + 0.1 * batch + 2.0 * batch / tp

    found = compute.fit([(tp, b, ms(tp, b)) for tp in (1, 2, 4) for b in (1, 2, 8)])
    assert found.worst < 1e-9 and found.is_measured(2, 8) and not found.is_measured(2, 4)
    for tp, batch in ((2, 8), (2, 4), (8, 1), (16, 32)):
        assert found.ms(tp, batch) == pytest.approx(ms(tp, batch))
    with pytest.raises(ValueError, match="measured on one device"):
        compute.fit([])


def by_hand(sent, worked):
    """(communication, exposed) counted in whole milliseconds."""
    ms = [(any(b <= t < e for b, e in sent), any(b <= t < e for b, e in worked)) for t in range(40)]
    return sum(s for s, _ in ms), sum(s and not w for s, w in ms)


def test_overlap_equals_a_count_by_hand():
    draw = random.Random(5)
    for _ in range(200):
        sent, worked = (
            [(a := draw.randrange(38), a + draw.randrange(1, 9)) for _ in range(draw.randrange(5))]
            for _ in range(2)
        )
        sent, worked = ([(a, min(b, 40)) for a, b in some] for some in (sent, worked))
        found = overlap.shares(40, sent, worked)
        assert (found.communication_ms, found.exposed_ms) == by_hand(sent, worked)
        left = overlap.without(overlap.union(sent), overlap.union(worked))
        assert sum(b - a for a, b in left) == found.exposed_ms
    assert overlap.shares(3, [], [(0, 1)]).hidden is None
