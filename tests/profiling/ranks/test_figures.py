"""Figures over ranks, from activities made by hand: unions, time, matching, clocks, stragglers, critical
path."""

from itertools import pairwise

import numpy as np
import pytest

from fusescope.analysis.ranks import arrivals, breakdown, clocks, compared, critical, intervals, matching
from fusescope.analysis.ranks.activities import (
    ABSENT,
    COMMUNICATION,
    COMPUTE,
    MEMORY,
    Activities,
    each_waits,
    is_communication,
    plain,
)


def made(rows, collectives=(), on_device=True) -> Activities:
    """rows: (begin, end, kind, stream, launch, step, name, collective or -1)."""
    rows = sorted(rows)
    names = list(dict.fromkeys(r[6] for r in rows))
    columns = [np.array([r[i] for r in rows], np.int64) for i in range(6)]
    name = np.array([names.index(r[6]) for r in rows], np.int32)
    told = np.array([r[7] if len(r) > 7 else -1 for r in rows], np.int32)
    return Activities(*columns, name, told, names, list(collectives), on_device)


def reduce(begin, end, step=ABSENT, told=-1, name="ncclDevKernel_AllReduce_Sum_f32(x)"):
    return (begin, end, COMMUNICATION, 20, ABSENT, step, name, told)


def compute(begin, end, launch=ABSENT, stream=7, name="k"):
    return (begin, end, COMPUTE, stream, launch, ABSENT, name)


@pytest.mark.parametrize("seed", range(4))
def test_unions_and_what_they_cover_equal_a_count_of_single_ns(seed):
    draw = np.random.default_rng(seed)
    begin = draw.integers(0, 200, 40)
    end = begin + draw.integers(0, 20, 40)
    of = intervals.union(begin, end)
    dots = np.zeros(300, bool)
    for a, b in zip(begin, end):
        dots[a:b] = True
    assert intervals.length(of) == dots.sum() and (of[0][1:] > of[1][:-1]).all()
    a = draw.integers(0, 250, 30)
    b = a + draw.integers(0, 40, 30)
    assert intervals.covered(a, b, of).tolist() == [dots[i:j].sum() for i, j in zip(a, b)]
    none = intervals.union(begin[:0], end[:0])
    assert intervals.length(none) == 0 and intervals.covered(a, b, none).sum() == 0


def test_the_parts_of_a_ranks_time_add_up_to_its_span():
    of = made(
        [compute(0, 100), reduce(60, 160), (150, 180, MEMORY, 9, ABSENT, ABSENT, "Memcpy"), compute(190, 200)]
    )
    found = breakdown.times(of)
    assert {p: found[p] for p in breakdown.PARTS} == {
        "compute_ns": 70,
        "overlapped_ns": 40,
        "exposed_ns": 60,
        "memory_ns": 20,
        "idle_ns": 10,
    }
    assert sum(found[p] for p in breakdown.PARTS) == found["span_ns"] == 200
    assert breakdown.times(made([]))["span_ns"] == 0


def test_idle_of_a_stream_by_its_launch():
    of = made(
        [compute(0, 10), compute(50, 60, launch=20), compute(70, 80, launch=5), compute(90_000, 90_001, 6)]
    )
    assert breakdown.idle_by_stream(of) == [
        {"stream": 7, "host_wait_ns": 40, "kernel_wait_ns": 10, "other_ns": 89_920}
    ]


@pytest.mark.parametrize(
    ("name", "means", "waits"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce", True),
        ("ncclKernel_ReduceScatter_TREE_LL_Sum_float(ncclWorkElem)", "reducescatter", True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "sendrecv", False),
        ("gloo:all_gather", "allgather", True),
        ("nccl:_all_gather_base", "allgatherbase", True),
        ("broadcast", "broadcast", False),
    ],
)
def test_collectives_have_one_name_whoever_names_them(name, means, waits):
    assert plain(name) == means and each_waits(name) is waits


def test_what_communicates():
    assert is_communication("ncclDevKernel_AllReduce(x)", True) and is_communication("gloo:all_reduce", False)
    assert is_communication("void vllm::cross_device_reduce_1stage<float>()", True)
    assert not is_communication("void gemm(nccl)", True) and not is_communication("aten::mm", False)


def test_events_are_matched_by_number_by_order_and_by_step():
    about = [{"name": "allreduce", "number": n, "group_name": "0"} for n in range(4)]
    a = made([reduce(0, 9, told=0), reduce(10, 19, told=1), reduce(20, 29, told=2)], about)
    b = made([reduce(12, 19, told=1), reduce(22, 29, told=2), reduce(32, 39, told=3)], about)
    found = matching.match({0: a, 1: b})
    assert list(zip(found.rank.tolist(), found.row.tolist())) == [(0, 1), (1, 0), (0, 2), (1, 1)]
    assert sum(found.left.values()) == 2

    plainly = {r: made([reduce(10 * n, 10 * n + 9) for n in range(3)]) for r in (0, 1)}
    assert matching.match(plainly).count == 3 and matching.match(plainly).left == {}

    steps = {0: made([reduce(0, 9, 1), reduce(10, 19, 2)]), 1: made([reduce(10, 19, 2), reduce(20, 29, 3)])}
    found = matching.match(steps)
    assert found.count == 1 and list(zip(found.rank.tolist(), found.row.tolist())) == [(0, 1), (1, 0)]

    uneven = {0: made([reduce(0, 9), reduce(10, 19)]), 1: made([reduce(10, 19)])}
    found = matching.match(uneven)
    assert found.count == 0 and list(found.left.values()) == [3]


def test_groups_are_kept_apart_and_senders_go_to_their_receivers():
    tp = [
        {"name": "allreduce", "group_name": "1", "group_ranks": r, "group_size": 2}
        for r in ("[0, 1]", "[2, 3]")
    ]
    found = matching.match({r: made([reduce(0, 9, told=0)], [tp[r // 2]]) for r in range(4)})
    assert found.count == 2 and [found.rank[found.which == n].tolist() for n in (0, 1)] == [[0, 1], [2, 3]]
    ends = {"source_rank": 0, "target_rank": 1, "group_name": "0", "group_size": 2}
    pair = {
        0: made([reduce(0, 9, told=0)], [{"name": "send"} | ends]),
        1: made([reduce(0, 9, told=0)], [{"name": "recv"} | ends]),
    }
    found = matching.match(pair)
    assert found.count == 1 and not found.waits.any()
    alone = matching.match({r: made([reduce(0, 9, name="ncclDevKernel_SendRecv(x)")]) for r in (0, 1)})
    assert alone.count == 0 and "partner" in next(iter(alone.left))


@pytest.mark.parametrize("offset", [0, 7_000, 250_000, -40_000_000_000])
def test_clock_offsets_are_found_within_what_ends_scatter_by(offset):
    draw = np.random.default_rng(1)
    truth = np.cumsum(draw.integers(10_000, 1_000_000, 60))
    which = np.repeat(np.arange(60), 4)
    clock = np.tile([0, 0, 1, 1], 60)
    end = truth[which] + draw.integers(-3000, 3000, 240) + np.where(clock == 1, offset, 0)
    first, second = clocks.estimate(which, end, clock, 2)
    assert first.offset_ns == 0 and abs(second.estimate_ns + offset) < 2000 and second.spread_ns < 3000
    assert second.offset_ns == (0 if abs(offset) < clocks.LEAST_NS else second.estimate_ns)


def test_clocks_are_compared_along_a_chain_of_groups_or_not_at_all():
    which = np.repeat(np.arange(20), 2)
    clock = np.array([[0, 1], [1, 2]] * 10).reshape(-1)
    end = 10**6 * which + np.array([0, 100_000, 300_000, 0])[clock]
    found = clocks.estimate(which, end, clock, 4)
    assert [c.estimate_ns for c in found[:3]] == pytest.approx([0, -100_000, -300_000], abs=200)
    assert found[3].estimate_ns is None and found[3].offset_ns == 0
    assert clocks.estimate(*(np.zeros(0, np.int64),) * 3, 2)[1].estimate_ns is None
    assert clocks.by_host({0: "a", 1: "b", 2: "a", 3: None}, [0, 1, 2, 3]) == {0: 0, 1: 1, 2: 0, 3: 2}


def test_collectives_that_cannot_be_one_are_seen():
    which = np.array([0, 0, 1, 1])
    begin, end = np.array([0, 10, 0, 200_000]), np.array([50, 60, 50_000, 300_000])
    assert clocks.spans(which, begin, end).tolist() == [True, False]


def test_the_straggler_is_the_one_that_alone_comes_late():
    which, rank = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    begin, end = np.array([0, 10, 40, 105, 100, 130]), np.array([60] * 3 + [150] * 3)
    found = arrivals.skews(which, rank, begin, end, 2)
    assert found["skew_ns"].tolist() == [40, 30] and found["ahead_ns"].tolist() == [30, 25]
    assert found["transfer_ns"].tolist() == [20, 20]
    late = arrivals.stragglers(found, which, rank, np.array([True, True]), [0, 1, 2])
    assert late[2] == {"collectives": 2, "last": 2, "held_up_ns": 55, "wait_ns": 0}
    assert late[0] == {"collectives": 2, "last": 0, "held_up_ns": 0, "wait_ns": 65}
    assert arrivals.stragglers(found, which, rank, np.array([True, False]), [2])[2]["held_up_ns"] == 30


def test_the_path_goes_to_the_rank_that_came_last_and_names_what_it_waited_for():
    fast = made([compute(0, 100_000), reduce(100_000, 330_000), compute(330_000, 400_000)])
    late = compute(200_000, 300_000, launch=190_000, name="late")
    slow = made([compute(0, 150_000), late, reduce(300_000, 330_000)])
    path = critical.path({0: fast, 1: slow}, {(0, 1): (1, 2), (1, 2): (1, 2)})
    assert [(s.rank, s.begin // 1000, s.end // 1000, s.kind) for s in path] == [
        (1, 0, 150, "compute"),
        (1, 150, 200, critical.HOST),
        (1, 200, 300, "compute"),
        (0, 300, 330, "communication"),
        (0, 330, 400, "compute"),
    ]
    assert sum(row["share"] for row in critical.shares(path)) == pytest.approx(1)
    assert critical.path({0: made([])}, {}) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_path_has_no_holes_and_ends_whatever_the_activities(seed):
    draw = np.random.default_rng(seed)
    each = {
        r: made(
            [
                compute(int(b), int(b + d), stream=int(s))
                for b, d, s in draw.integers(0, [900, 40, 3], (80, 3))
            ]
        )
        for r in range(3)
    }
    path = critical.path(each, {})
    assert all(a.end == b.begin for a, b in pairwise(path)) and len(path) > 3
    assert path[-1].end == max(int(of.end.max()) for of in each.values())


def test_kernels_are_compared_with_the_median_rank():
    rows = [
        {"name": n, "kind": "compute", "rank": r, "calls": 1, "total_ns": ns}
        for n, times in {"even": (10, 10, 10), "odd": (10, 10, 50), "rare": (5, None, None)}.items()
        for r, ns in enumerate(times)
        if ns is not None
    ]
    found = {r["name"]: r for r in compared.kernels(rows, [0, 1, 2])}
    assert list(found) == ["odd", "rare", "even"]
    assert (found["odd"]["slowest"], found["odd"]["ratio"], found["odd"]["excess_ns"]) == (2, 5.0, 40)
    assert found["rare"]["ratio"] is None and found["rare"]["total_ns"] == [5, None, None]


def test_the_kernels_of_two_ranks():
    each = {"even": (10, 10), "odd": (10, 50), "rare": (5, None), "new": (None, 7)}
    rows = [
        {"name": name, "kind": "compute", "rank": rank, "calls": 2, "total_ns": ns}
        for name, times in each.items()
        for rank, ns in zip((3, 8), times)
        if ns is not None
    ]
    found = {r["name"]: r for r in compared.pair([*rows, rows[0] | {"rank": 5, "total_ns": 999}], 3, 8)}
    assert list(found) == ["odd", "new", "rare", "even"]
    assert (found["odd"]["difference_ns"], found["odd"]["ratio"]) == (40, 5.0)
    assert (found["rare"]["second_ns"], found["rare"]["second_calls"], found["rare"]["ratio"]) == (0, 0, 0.0)
    assert found["new"]["ratio"] is None and found["new"]["difference_ns"] == 7
    back = {r["name"]: r["difference_ns"] for r in compared.pair(rows, 8, 3)}
    assert back["odd"] == -40 and sum(back.values()) == -sum(r["difference_ns"] for r in found.values())
    with pytest.raises(ValueError, match="itself"):
        compared.pair(rows, 3, 3)


def test_an_operator_counts_from_the_end_of_its_last_wait():
    begin, end, thread = (np.array(x) for x in ([0, 100, 200, 0], [90, 190, 290, 1000], [1, 1, 1, 2]))
    waits = tuple(np.array(x) for x in ([150, 110, 210, 40], [160, 140, 400, 45], [1, 1, 1, 3]))
    found = intervals.after_waits(begin, end, thread, waits)
    assert found.tolist() == [0, 160, 290, 0], "none, the last of two, one that ends later; another thread's"
    none = tuple(x[:0] for x in waits)
    assert intervals.after_waits(begin, end, thread, none).tolist() == begin.tolist()
