"""What the kernel on items works on: parts of masks are disjoint and together the mask, items of work cover
every list once."""

import itertools

import numpy as np
import pytest
import torch

from fusescope import kernels, masks
from fusescope.core.sources import families
from fusescope.masks.common.mask import definition
from fusescope.ops.attention import attention, prepare
from fusescope.ops.attention.dispatch import kernel_sources
from fusescope.ops.attention.plan import tiles
from fusescope.ops.attention.work import items, lists, parts
from tests.attention import bias_tools, scored_tools
from tests.attention.attention_tools import OP, case

IN_PARTS = tuple(name for name in masks.names() if hasattr(definition(name), "parts"))
PARAMETERS = {
    "dilated": [{"window": w, "dilation": d} for w in (0, 1, 5, 40) for d in (1, 2, 3, 16)],
    "strided": [{"window": w, "stride": s} for w in (0, 1, 4, 7, 16, 50) for s in (1, 3, 4, 7, 16)],
    "fixed": [{"block": b, "summary": s} for b in (1, 4, 7, 16) for s in (0, 1, 4, 9)],
}
SIZES = ((1, 1), (16, 16), (33, 33), (48, 64), (64, 48), (7, 40), (96, 96))


@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_are_disjoint_and_together_the_mask(name):
    for values in [{}, *PARAMETERS[name]]:
        mask = masks.load(name, **values)
        for sizes in SIZES:
            found = mask.parts(*sizes)
            together = np.sum([p.bound.dense().astype(int) for p in found], axis=0)
            assert np.array_equal(together, mask.dense(*sizes).astype(int)), (mask, sizes)
            assert all(p.rows >= 1 and p.keys >= 1 for p in found)


def test_masks_that_say_nothing_have_no_parts():
    assert masks.load("causal").parts(64) == () == masks.from_dense(np.ones((4, 4), bool)).parts(4)


@pytest.mark.parametrize("modulus, size", [(1, 7), (2, 128), (16, 64), (7, 7), (3, 384)])
def test_places_in_strided_permuted_order(modulus, size):
    order = tiles.ordered(np.arange(size), modulus, size)
    assert order.tolist() == sorted(range(size), key=lambda i: (i % modulus, i))
    bound = masks.load("random", density=0.3).bind(size, size)
    rows, columns = (0, size), (0, min(size, 64))
    want = bound.dense()[order][:, order[: columns[1]]]
    for evaluate in (tiles.evaluate, tiles._evaluate_torch):
        assert np.array_equal(evaluate(bound, 0, rows, columns, "cpu", (modulus, modulus)).numpy(), want)


def decoded(work, plan, group):
    """The dense masks (batch entries * heads, S_q, S_k) that the items of all parts make up, as the kernel
    reads them: how often each pair is worked on; and the slots of each part."""
    thread, element = torch.arange(128)[:, None], torch.arange(32)[None, :]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (element >> 1 & 1)
    column = 8 * (element // 4) + 2 * (thread % 4) + (element & 1)
    squares = torch.zeros(work.fragments.shape[0], 64, 64, dtype=torch.int32)
    squares[:, row, column] = (work.fragments[:, :, None] >> element & 1).int()
    seq_q, seq_k = plan.seq_q, plan.seq_k
    groups = -(-seq_q // (64 * group))
    entries, rows, slots = work.schedule.tolist(), work.items.tolist(), []
    heads = work.parts[0, 7].item()
    out = torch.zeros(heads, seq_q, seq_k, dtype=torch.int32)
    for (
        q_modulus,
        k_modulus,
        first,
        rounds,
        workers,
        pieces,
        slot_count,
        _,
        tiles_of_group,
    ) in work.parts.tolist():
        assert tiles_of_group == group
        mine, used, finished = rows[first : first + rounds * workers], {}, []
        ended = [[mine[r * workers + t][0] < 0 for r in range(rounds)] for t in range(workers)]
        assert all(column == sorted(column) for column in ended), "a worker has no gap between its items"
        q_order = tiles.ordered(np.arange(seq_q), q_modulus, seq_q)
        k_order = tiles.ordered(np.arange(seq_k), k_modulus, seq_k)
        placed = torch.zeros(heads, groups * group * 64, -(-seq_k // 64) * 64, dtype=torch.int32)
        held = {}  # by worker: the KV tiles of its last item
        for number, (what, head, entry, packed) in enumerate(mine):
            if what < 0:
                continue
            kept, number_of_group = divmod(what, items.ITEM_GROUPS)
            slot, steps = packed // items.ITEM_STEPS - 1, packed % items.ITEM_STEPS
            if slot < 0:
                finished.append((number_of_group, head))
            else:
                assert slot not in used and steps, "slots are used once, and a piece has a step"
                used[slot] = (number_of_group, head)
            here = [(head, *row[:-group]) for row in entries[entry : entry + steps]]
            assert kept <= 4 and here[:kept] == held.get(number % workers, [])[-kept:][:kept]
            held[number % workers] = here
            for row in entries[entry : entry + steps]:
                place = row[0] if group == 3 else row[1] * (seq_k // k_modulus) + row[0]
                for query, code in enumerate(row[-group:]):
                    at = (group * number_of_group + query) * 64
                    if code != -2:
                        square = squares[code] if code >= 0 else torch.ones(64, 64, dtype=torch.int32)
                        placed[head, at : at + 64, place : place + 64] += square
        assert not placed[:, :, seq_k:].any()
        out[:, q_order[:, None], k_order[None, :]] += placed[:, :seq_q, :seq_k]
        assert sorted(used) == list(range(slot_count))
        for slot, (begin, count, *_) in enumerate(rows[pieces : pieces + slot_count]):
            assert count > 1 and begin <= slot < begin + count
            assert {used[n] for n in range(begin, begin + count)} == {used[slot]}, "one list's"
        finished += set(used.values())
        assert len(set(finished)) == len(finished), "rows are finished once"
        assert len(slots) or len(finished) == groups * heads, "the first part writes every row"
        slots.append(slot_count)
    return out, slots


@pytest.mark.slow
@pytest.mark.parametrize("group", (2, 3))
@pytest.mark.parametrize("workers", (1, 6, 64))
@pytest.mark.parametrize(
    "text, sizes",
    [
        ("dilated:window=20,dilation=4", (512, 256)),
        ("dilated:window=9,dilation=2", (200, 200)),
        ("strided:window=30,stride=16", (512, 512)),
        ("strided:window=70,stride=16", (128, 512)),
        ("fixed:block=32,summary=4", (512, 512)),
        ("longformer:window=20,global_tokens=3", (400, 700)),
        ("random:density=0.001,seed=4", (200, 300)),
        ("causal", (450, 450)),
        ("causal", (300, 20)),
        ("full", (70, 500)),
        ("full", (300, 65)),
    ],
)
def test_items_are_the_mask(text, sizes, workers, group):
    plan = prepare(masks.parse(text), *sizes)
    kept = parts.PlanItems(plan, group)
    assert kept.splits[1] or not text.startswith(IN_PARTS) or sizes == (200, 200)
    for way in kept.splits:
        kept.splits = [way]
        if way:
            out, slots = decoded(kept.make(3, workers, 1 + workers // 6 % 2), plan, group)
            assert torch.equal(out, plan.dense()[0].int().expand(3, -1, -1))
            if workers == 1:
                assert slots == [0] * len(way), "one worker has nobody to share with"


@pytest.mark.parametrize("group", (2, 3))
def test_items_of_a_mask_a_head(group):
    torch.manual_seed(0)
    plan = prepare(torch.rand(2, 3, 150, 300) < 0.01, 150, 300)
    out, _ = decoded(parts.of(plan, 2, 3, 72, 4, group), plan, group)
    assert torch.equal(out, plan.dense().reshape(6, 150, 300).int())


@pytest.mark.parametrize("group", (2, 3))
@pytest.mark.parametrize(
    "text, begins",
    [
        ("sliding_window:left=128,right=128", "first"),  # a tile 128 keys back has one for every row
        (
            "sliding_window:left=127,right=0",
            "last",
        ),  # one 127 back has none for the last row, the diagonal has
        ("sliding_window:left=100,right=100", "middle"),
        ("causal", "first"),
        ("document:lengths=100+412", "first"),  # the rows of two documents have no tile in common
    ],
)
def test_lists_begin_with_a_tile_that_has_a_key_for_each_row(text, begins, group):
    plan = prepare(masks.parse(text), 512, 512)
    (one,) = parts.PlanItems(plan, group).splits[0]
    first, steps = one.table[1]  # the second group of query tiles; of documents all its rows have the same
    places = one.entries[first : first + steps, 0].tolist()
    up = sorted(places)
    if begins == "middle":
        assert places[0] not in (up[0], up[-1]) and places[1:] == [p for p in up if p != places[0]]
    else:
        assert places == (up if begins == "first" else up[::-1])
    live = plan.dense()[0]
    seen = [live[64 * row : 64 * row + 64, places[0] : places[0] + 64] for row in range(group, 2 * group)]
    assert all(tile.any(1).all() or not tile.any() for tile in seen), (
        "every row has a key or the tile is not needed"
    )


def steps_of(work):
    """Steps of each item and slots of each part."""
    found = []
    for _, _, first, rounds, workers, _, slots, *_ in work.parts.tolist():
        rows = work.items[first : first + rounds * workers]
        found.append((rows[rows[:, 0] >= 0][:, 3] % items.ITEM_STEPS, slots))
    return found


def test_long_lists_are_cut_to_fill_what_the_others_leave():
    plan = prepare(masks.load("longformer", window=64, global_tokens=64), 2048, 2048)
    ((steps, slots),) = steps_of(parts.of(plan, 1, 12, 64, 264))
    assert slots and steps.max() <= 12, "the row of global tokens has 32"
    ((steps, slots),) = steps_of(parts.of(plan, 32, 12, 64, 264))
    assert not slots and steps.max() == 32, "many heads fill the device without pieces"
    full = prepare(masks.load("full"), 2048, 2048)
    work = parts.of(full, 1, 12, 64, 264)
    ((steps, slots),) = steps_of(work)
    assert sorted(set(steps.tolist())) == [16, 32] and slots == 120, "60 of 192 lists make up for 132 blocks"
    assert work.predicted < 32, "two lists of 32 steps on one multiprocessor otherwise"
    long = parts.of(prepare(masks.load("full"), 4096, 4096), 4, 32, 128, 132)
    ((steps, slots),) = steps_of(long)
    assert 0 < slots < 264 and (steps == 64).sum() >= 31 * 132, "four of 4096 lists are one too many"
    of_three = parts.of(prepare(masks.load("full"), 3072, 3072), 1, 25, 128, 132, group=3)
    ((steps, slots),) = steps_of(of_three)
    assert 0 < slots < 264 and (steps == 48).sum() >= 2 * 132, "four of 400 lists are one too many"


def test_a_list_whose_multiprocessor_does_nothing_else_is_not_cut():
    """The worker that is alone on its multiprocessor is 1 / 0.6 times as fast."""
    full = prepare(masks.load("full"), 1024, 1024)
    ((steps, slots),) = steps_of(parts.of(full, 1, 4, 64, 64))
    assert slots == 0 and set(steps.tolist()) == {16}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, batch, least",
    [
        ("sliding_window", 16, 0.5),  # four of six KV tiles, except where a worker begins or a head ends
        ("sliding_window:right=0", 16, 0.35),
        ("dilated", 16, 0.45),
        ("sliding_window", 1, 0.0),  # hardly two items a worker
        ("bigbird", 16, None),  # tiles far away: heads stay together instead
        ("strided", 16, None),  # another part follows
        ("full", 1, None),
    ],
)
def test_a_team_keeps_what_neighbouring_lists_have_in_common(text, batch, least):
    work = parts.of(prepare(masks.parse(text), 2048, 2048), batch, 12, 64, 264)
    for _, _, first, rounds, workers, *_ in work.parts.tolist():
        rows = work.items[first : first + rounds * workers]
        rows = rows[rows[:, 0] >= 0]
        kept, steps = (
            (rows[:, 0] // items.ITEM_GROUPS).sum().item(),
            (rows[:, 3] % items.ITEM_STEPS).sum().item(),
        )
        assert kept >= least * steps if least is not None else kept == 0
        assert not least or rounds - len(rows) / workers < 1, "stretches are as even as single items"


def test_work_is_kept_with_its_plan_and_counted():
    plan = prepare(masks.load("strided"), 4096, 4096)
    before = plan.bytes
    work = parts.of(plan, 16, 12, 64, 264)
    assert parts.of(plan, 8, 24, 64, 264) is work and parts.of(plan, 1, 12, 64, 264) is not work
    own = (work.schedule, work.fragments, work.items)
    plans = (plan.bitmaps, plan.row_ptr, plan.tile_index, plan.tile_code)
    held = sum(x.numel() * x.element_size() for x in own + plans)
    assert work.bytes == held and work.build_ms > 0
    assert plan.bytes == before, "other kernels do not pay for it"
    assert len(work.parts) == 2 and work.parts[:, :2].tolist() == [[1, 1], [128, 128]]


@pytest.mark.parametrize(
    "modulus, size, yes",
    [(1, 77, True), (2, 128, True), (2, 130, False), (3, 100, False), (16, 512, True), (200, 100, False)],
)
def test_orders_that_go_into_boxes(modulus, size, yes):
    assert lists.fits(modulus, size) == yes


@pytest.mark.gpu
def test_it_can_be_captured_once_its_work_is_made():
    inputs = OP.inputs(case(2048, mask="strided", batch=2, heads=12, head_dim=64), "float16", "cuda", 0)
    q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
    attention(q, k, v)  # loads the library
    with (
        pytest.raises(RuntimeError, match="call it once with these sizes before"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        attention(q, k, v, plan, impl="v5_parts")
    for mask in (plan, None):
        attention(q, k, v, mask, impl="v5_parts")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attention(q, k, v, mask, impl="v5_parts")
        q.normal_()
        graph.replay()
        assert torch.equal(out, attention(q, k, v, mask, impl="v5_parts"))


@pytest.mark.gpu
def test_work_made_for_a_gpu_is_that_of_the_cpu():
    for text in ("strided:window=40,stride=32", "bigbird", "full"):
        one, other = (
            parts.PlanItems(prepare(masks.parse(text), 512, 512, device), 2) for device in ("cpu", "cuda")
        )
        for way in (0, 1):
            made = []
            for kept in (one, other):
                if kept.splits[way]:
                    whole, kept.splits = kept.splits, [kept.splits[way]]
                    kept.tensors = {}
                    made.append(kept.make(4, 64, 2))
                    kept.splits = whole
            assert not made or all(
                torch.equal(getattr(made[0], f), getattr(made[1], f).cpu())
                for f in ("schedule", "items", "parts")
            )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize(
    "text",
    (
        "dilated:window=20,dilation=2",
        "strided:window=40,stride=32",
        "fixed:block=32,summary=5",
        "longformer",
        "full",
    ),
)
def test_on_a_gpu_in_every_way_and_again_with_the_same_bits(text, dtype):
    """Whole, in parts, uncut and in as many pieces as there are, whatever the prediction would take; without
    a bias, and with one that is loaded by tiles where keys are in their own order, and by elements."""
    kernels.load("cuda")
    for impl, head_dim in itertools.product(("v5_parts", "v6_triples"), (64, 128)):
        values = case(1024, mask=text, batch=2, heads=4, kv_heads=2, head_dim=head_dim)
        inputs = OP.inputs(values, dtype, "cuda", 0)
        q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
        group = kernel_sources.group(impl)
        whole, apart = parts.PlanItems(plan, group).splits
        assert bool(apart) == text.startswith(IN_PARTS)
        shape, takes = (2, 4, 1024, 1024), families()["attention"].variant(impl).takes.bias
        layouts = ("rows", "late of one batch") if takes else ()
        biases = [None, *(bias_tools.made(layout, True, shape, q.dtype, "cuda", 0) for layout in layouts)]
        for way in (whole, apart):
            for blocks in (1, 100_000) if way else ():
                kept = parts.PlanItems(plan, group)
                kept.splits = [way]
                work = kept.make(8, blocks, parts.per_sm(head_dim, group))
                for bias in biases:
                    args = (q, k, v, impl, work.buffer, work.layout, None, bias)
                    outs = [torch.ops.fusescope.attention(*args) for _ in "ab"]
                    reason = scored_tools.wrong(outs[0], inputs | {"bias": bias}, dtype, None, None)
                    assert reason is None, (text, blocks, impl, head_dim, bias is None)
                    assert torch.equal(*outs)
