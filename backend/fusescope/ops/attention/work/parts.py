"""The parts of a mask as v5_parts takes them: lists of tiles in order of residues, made into a work with the
items of items.py.

A mask whose file says how it falls apart (Mask.parts) is taken in these parts where that is predicted to be
faster, else as a whole. cuda/attention/parts.h says what each number is.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fusescope.ops.attention.plan import buffer, schedule, tiles
from fusescope.ops.attention.plan.plan import Plan, prepare, tile_lists
from fusescope.ops.attention.work import items
from fusescope.ops.attention.work.items import Lists

KERNEL = "v5_parts"
MOST_COLUMNS = 128  # head sizes that it takes
_NOT_NEEDED = -2  # the code of a tile that a query tile of the pair does not need
_CPU_TEAMS = 16  # where there is no GPU: kernels are emulated
_lock = threading.Lock()


class Figures(NamedTuple):
    """How much a work is, all copies of its masks together, for the time models of chooser.py, a step being
    two KV tiles: parts; those of them with lists to join; steps of the longest items, one a part; steps that
    the two query tiles of an item take, halved; items; those of parts after the first; partial results."""

    parts: int
    joins: int
    longest: int
    steps: float
    blocks: int
    later: int
    pieces: int


@dataclass(frozen=True)
class Work:
    """What a call is given in the place of the plan: schedule int32 (entries, 4), fragments int32 (rows, 128)
    and items int32 (n, 4) on the device, parts of ``buffer``; parts int64 (parts, 9) on the host, which
    ``layout`` repeats. predicted: how long it takes, in steps of one KV tile (items.py); gain: the same where
    every list is taken whole, as v4 does, over that; figures: what it costs; build_ms: how long making all of
    it took."""

    parts: Any
    predicted: float
    gain: float
    figures: Figures
    build_ms: float
    buffer: Any
    layout: str
    schedule: Any
    fragments: Any
    items: Any

    @property
    def bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


def known(plan: Plan, batch: int, heads: int, head_dim: int, teams: int | None = None) -> Work | None:
    """The same as ``of``, where it is made already."""
    kept = plan.__dict__.get("_parts")
    return None if kept is None else kept.works.get(_key(plan, batch, heads, head_dim, teams))


def _key(plan: Plan, batch: int, heads: int, head_dim: int, teams: int | None) -> tuple[int, int, int]:
    """Of a work: copies of each mask, teams, and how many of these share a multiprocessor."""
    return (
        batch * heads // (plan.batch * plan.heads),
        teams or _teams(plan.device, head_dim),
        _a_block(head_dim),
    )


def of(plan: Plan, batch: int, heads: int, head_dim: int, teams: int | None = None) -> Work:
    """The work of a call on this plan, made at the first call of its kind and kept with the plan.

    teams: how many the device runs at once; None asks the device. Raises RuntimeError for a new one under
    CUDA graph capture, ValueError for lists that are too long.
    """
    key = _key(plan, batch, heads, head_dim, teams)
    with _lock:
        kept = plan.__dict__.get("_parts")
        if kept is None or key not in kept.works:
            _refuse_under_capture(plan.device)
            if kept is None:
                kept = _Kept(plan)
                object.__setattr__(plan, "_parts", kept)
            kept.works[key] = kept.work(*key)
        return kept.works[key]


def work(plan: Plan | None, q, k) -> Work:
    """What the operator takes in the place of a plan for these tensors; plan None = every key."""
    plan = prepare(None, q.shape[2], k.shape[2], q.device) if plan is None else plan
    return of(plan, q.shape[0], q.shape[1], q.shape[3])


class _Kept:
    """Kept with a plan: its lists as a whole and in parts, and the works made of them."""

    def __init__(self, plan: Plan):
        begin = time.perf_counter()
        self.sizes, self.device, self.works = (
            (plan.seq_q, plan.seq_k, plan.batch, plan.heads),
            plan.device,
            {},
        )
        self.ways = [[_whole(plan)], _parts(plan)]
        self.build_ms = (time.perf_counter() - begin) * 1e3

    def work(self, copies: int, teams: int, a_block: int) -> Work:
        import torch

        begin = time.perf_counter()
        made = [
            (*_one_after_another(way, self.sizes[2:], copies, teams, a_block), way)
            for way in self.ways
            if way
        ]
        predicted, described, rows, figures, way = min(made, key=lambda m: m[0])
        entries, fragments = _joined(way)
        arrays = {
            "schedule": entries,
            "fragments": fragments,
            "items": torch.from_numpy(rows).to(self.device),
        }
        data, layout, views = buffer.join(arrays, self.sizes, self.device, described.flatten().tolist())
        if self.device.type == "cuda":  # the kernel reads items before what stands in front of it is done
            torch.cuda.current_stream(self.device).synchronize()
        took = self.build_ms + (time.perf_counter() - begin) * 1e3
        gain = items.uncut(self.ways[0][0], copies, teams, a_block) / predicted
        return Work(torch.from_numpy(described), predicted, gain, figures, took, data, layout, **views)


def resident(multiprocessors: int, head_dim: int) -> int:
    """How many teams a GPU runs at once."""
    return multiprocessors * _a_block(head_dim)


def _a_block(head_dim: int) -> int:
    return 2 if head_dim <= 64 else 1


def _teams(device, head_dim: int) -> int:
    if device.type != "cuda":
        return _CPU_TEAMS
    import torch

    return resident(torch.cuda.get_device_properties(device).multi_processor_count, head_dim)


def _refuse_under_capture(device) -> None:
    import torch

    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "under CUDA graph capture kernels in parts need their items of work: call it once with these sizes before"
        )


# --- lists


def fits(modulus: int, size: int) -> bool:
    """Whether a box of TMA can take 64 rows in order of residues."""
    if modulus == 1:
        return True
    length = size // modulus
    return (
        1 <= modulus <= size
        and size % modulus == 0
        and (length % tiles.TILE == 0 or tiles.TILE % length == 0)
    )


def _whole(plan: Plan) -> Lists:
    if plan.is_full:
        return _every_key(plan)
    return _lists(
        plan.row_ptr,
        plan.tile_index,
        plan.tile_code,
        plan.bitmaps,
        plan.batch * plan.heads,
        plan.seq_q,
        plan.seq_k,
    )


def _every_key(plan: Plan) -> Lists:
    """One list of all tiles that every pair of query tiles takes, and the last one's where that is half a
    pair."""
    import torch

    count, last = -(-plan.seq_k // tiles.TILE), -(-plan.seq_q // tiles.TILE) % 2
    index = torch.arange(count, dtype=torch.int32, device=plan.device).repeat(2 + last)
    row_ptr = torch.arange(3 + last, dtype=torch.int32, device=plan.device) * count
    nothing = torch.zeros(0, tiles.TILE, dtype=torch.int64, device=plan.device)
    one = _lists(row_ptr, index, torch.full_like(index, -1), nothing, 1, (2 + last) * tiles.TILE, plan.seq_k)
    pairs = _pairs(plan.seq_q)
    table = np.repeat(one.table[:1], pairs, 0)
    table[pairs - last :] = one.table[1:]
    table = np.tile(table, (plan.batch * plan.heads, 1))
    return Lists(
        1, 1, pairs, one.entries, one.fragments, table, one.needs, _overlap(one.entries, table, pairs)
    )


def _parts(plan: Plan) -> list[Lists]:
    """The lists of the mask's parts; none where it has none, or sizes that do not go into boxes."""
    found = plan.mask.parts(plan.seq_q, plan.seq_k) if plan.mask is not None else ()
    if all(p.rows == p.keys == 1 for p in found) or not all(
        fits(p.rows, plan.seq_q) and fits(p.keys, plan.seq_k) for p in found
    ):
        return []
    made = []
    for p in found:

        def keep(number, rows, columns, p=p):
            return tiles.evaluate(p.bound, number, rows, columns, plan.device, (p.rows, p.keys))

        masks = p.bound.sequences or 1
        lists, live, *_ = tile_lists(masks, plan.seq_q, plan.seq_k, keep, plan.device)
        if live or not made:
            made.append(_lists(*lists, masks, plan.seq_q, plan.seq_k, p.rows, p.keys))
    return made


def _pairs(seq_q: int) -> int:
    return -(-seq_q // (2 * tiles.TILE))


def _lists(
    row_ptr, tile_index, tile_code, bitmaps, masks: int, seq_q: int, seq_k: int, rows: int = 1, keys: int = 1
) -> Lists:
    """Of a plan's lists (attention.cuh), for two neighbouring query tiles together: the tiles that either
    needs, ascending unless another order lets query tiles begin with one that has a key for each of their
    rows."""
    import torch

    device, q_tiles, k_tiles, pairs = (
        row_ptr.device,
        -(-seq_q // tiles.TILE),
        -(-seq_k // tiles.TILE),
        _pairs(seq_q),
    )
    code, bitmaps = schedule.edged(tile_index, tile_code, bitmaps, seq_k)
    row = torch.arange(masks * q_tiles, device=device).repeat_interleave((row_ptr[1:] - row_ptr[:-1]).long())
    pair = row // q_tiles * pairs + row % q_tiles // 2
    cells, where = torch.unique(pair * k_tiles + tile_index.long(), return_inverse=True)
    entries = torch.full((cells.numel(), 4), _NOT_NEEDED, dtype=torch.int32, device=device)
    entries[where, 2 + row % q_tiles % 2] = code
    place, length = cells % k_tiles * tiles.TILE, seq_k // keys  # with one residue all places are smaller
    entries[:, 0], entries[:, 1] = place % length if keys > 1 else place, place // length if keys > 1 else 0
    number = cells // k_tiles
    steps = torch.bincount(number, minlength=masks * pairs)
    entries = entries[_seen_first(entries, number, steps, (bitmaps == 0).any(1))]
    steps = steps.cpu().numpy()
    needs = np.concatenate([[0], np.cumsum((entries[:, 2:] != _NOT_NEEDED).sum(1).cpu().numpy())])
    table = np.stack([np.cumsum(steps) - steps, steps], 1)
    return Lists(
        rows, keys, pairs, entries, schedule.fragments(bitmaps), table, needs, _overlap(entries, table, pairs)
    )


def _seen_first(entries, number, steps, blank):
    """The order of entries, int64 (n,), in which query tiles begin, if possible, with a tile that has a key
    for each of their rows: ascending, descending, or ascending behind one from the middle.

    number: int64 (n,), the list of each entry, ascending; steps: int64 (lists,), how many each has; blank:
    bool, whether the bitmap of a code leaves a row without a key. Such a row has nothing that its weights
    could be relative to, and takes v5_parts more time later.
    """
    import torch

    count, place = len(number), torch.arange(len(number), device=number.device)
    needed, code = entries[:, 2:] != _NOT_NEEDED, entries[:, 2:].long()
    waits = torch.cat([blank, blank.new_zeros(1)])[torch.where(code >= 0, code, len(blank))]
    behind = torch.cat([waits, waits.new_zeros(1, 2)])  # of query tiles that need nothing

    def extreme(which, missing, places, of):
        return torch.full((len(steps), *of.shape[1:]), missing, device=of.device).scatter_reduce(
            0, of, places, which
        )

    lists = number[:, None].expand(-1, 2)
    first = extreme("amin", count, torch.where(needed, place[:, None], count), lists)
    last = extreme("amax", -1, torch.where(needed, place[:, None], -1), lists)
    ascending, descending = (behind.gather(0, end % (count + 1)).sum(1) for end in (first, last))
    middle = extreme("amin", count, torch.where((needed & ~waits).all(1), place, count), number)
    key = torch.where((descending < ascending)[number], -place, place)
    neither = (torch.minimum(ascending, descending) > 0) & (middle < count)
    key[middle[neither]] = -count
    return torch.argsort(number * (3 * count) + key)


def _overlap(entries, table, pairs: int):
    """Lists.overlap of these lists: the most tiles, up to items.MOST_KEPT, that are first here and last
    there, in the same order."""
    places = entries[:, :2].cpu().numpy()
    first, steps = table.T
    pair = np.arange(len(table)) % pairs
    found = np.zeros((2, len(table)), np.int64)
    for way, by in enumerate((-1, 1)):
        here = np.flatnonzero((pair + by >= 0) & (pair + by < pairs))
        for many in range(1, items.MOST_KEPT + 1):
            here = here[np.minimum(steps[here], steps[here + by]) >= many]
            at, there = np.arange(many), here + by
            same = places[first[here, None] + at] == places[(first + steps)[there, None] - many + at]
            found[way, here[same.all((1, 2))]] = many
    return found


def _joined(parts: list[Lists]):
    """(schedule, fragments) of several parts in one tensor each."""
    import torch

    entries, base = [], 0
    for part in parts:
        some = part.entries.clone()
        some[:, 2:] += base * (some[:, 2:] >= 0)
        entries.append(some)
        base += part.fragments.shape[0]
    return torch.cat(entries).contiguous(), torch.cat([p.fragments for p in parts]).contiguous()


def _one_after_another(parts: list[Lists], masks: tuple[int, int], copies: int, teams: int, a_block: int):
    """(predicted steps, description, rows of items and joins, figures) of these parts."""
    heads = masks[0] * masks[1] * copies
    described, rows, took, entry = [], [], items.PART * (len(parts) - 1), 0
    figures = Figures(len(parts), 0, 0, 0.0, 0, 0, 0)
    for number, part in enumerate(parts):
        made = items.make(part, masks, copies, teams, a_block, later=number > 0, alone=len(parts) == 1)
        steps, needed = (
            made.steps,
            int((part.needs[part.table.sum(1)] - part.needs[part.table[:, 0]]).sum()) * copies,
        )
        figures = figures._replace(
            joins=figures.joins + (len(made.joins) > 0),
            longest=figures.longest + (int(steps.max(initial=0)) + 1) // 2,
            steps=figures.steps + needed / 4,
            blocks=figures.blocks + len(steps),
            later=figures.later + len(steps) * (number > 0),
            pieces=figures.pieces + made.slots,
        )
        made.rows[:, 2] += entry
        entry += part.entries.shape[0]
        first = sum(map(len, rows))
        last = first + len(made.rows)
        described.append(
            [
                part.rows,
                part.keys,
                first,
                len(made.rows) // teams,
                teams,
                last,
                len(made.joins),
                made.slots,
                heads,
            ]
        )
        rows += [made.rows, made.joins]
        took += made.took
    return took, np.array(described, np.int64), np.concatenate(rows), figures
