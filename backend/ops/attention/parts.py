"""What v5_parts works on: the parts of a mask, their schedules, and items of work (cuda/attention/parts.h says what each number is).

A mask whose file says how it falls apart (Mask.parts) is taken in these parts where that is predicted to be faster, else as a whole. The
predictions are in steps of 128 keys of one block, a guess from measurements of v4 on an H200 ((16, 12, S, 64): 2.4 us a step with two blocks a
multiprocessor, and three quarters of that for a block's beginning and end).
"""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.ops.attention import buffer, schedule, tiles
from backend.ops.attention.plan import Plan, prepare, tile_lists

KERNEL = "v5_parts"
_BLOCK = 1.0  # beginning and end of a block, in steps
_PIECE = 0.5  # leaving a partial result and reading it again
_JOIN = 1.5  # the launch that joins partial results
_MERGE = 0.5  # of a block in a later part: reading rows that are there
_PART = 1.0  # the launch of a further part
_CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # into how many pieces the longest list may be cut
_SIMULATED = 1 << 14  # blocks up to which their order of finishing is followed one by one
_CPU_BLOCKS = 16  # resident blocks where there is no GPU: kernels are emulated
_lock = threading.Lock()


@dataclass(frozen=True)
class _Lists:
    """A part's lists: moduli of rows and keys, entries int32 (n, 4) and fragments on the device, and for each list (mask · pairs + pair)
    its first entry, its steps, the end of the first query tile's steps and the begin of the second's (int64 (lists, 4) on the host)."""

    rows: int
    keys: int
    pairs: int
    entries: Any
    fragments: Any
    table: np.ndarray


@dataclass(frozen=True)
class Work:
    """What a call is given in the place of the plan: schedule int32 (entries, 4), fragments int32 (rows, 128) and items int32 (items, 8) on
    the device, parts of ``buffer``; parts int64 (parts, 9) on the host, which ``layout`` repeats. predicted: how long it takes, in steps;
    build_ms: how long making all of it took."""

    parts: Any
    predicted: float
    build_ms: float
    buffer: Any
    layout: str
    schedule: Any
    fragments: Any
    items: Any

    @property
    def bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


def of(plan: Plan, batch: int, heads: int, head_dim: int, blocks: int | None = None) -> Work:
    """The work of a call on this plan, made at the first call of its kind and kept with the plan.

    blocks: how many the device runs at once; None asks the device. Raises RuntimeError for a new one under CUDA graph capture.
    """
    key = batch * heads // (plan.batch * plan.heads), blocks or _resident(plan.device, head_dim)
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
        self.sizes, self.device, self.works = (plan.seq_q, plan.seq_k, plan.batch, plan.heads), plan.device, {}
        self.ways = [[_whole(plan)], _parts(plan)]
        self.build_ms = (time.perf_counter() - begin) * 1e3

    def work(self, copies: int, blocks: int) -> Work:
        import torch

        begin = time.perf_counter()
        made = [(*_work(way, copies, blocks), number) for number, way in enumerate(self.ways) if way]
        predicted, described, items, number = min(made, key=lambda m: m[0])
        entries, fragments = _joined(self.ways[number])
        arrays = {"schedule": entries, "fragments": fragments, "items": torch.from_numpy(items).to(self.device)}
        data, layout, views = buffer.join(arrays, self.sizes, self.device, described.flatten().tolist())
        took = self.build_ms + (time.perf_counter() - begin) * 1e3
        return Work(torch.from_numpy(described), predicted, took, data, layout, **views)


def _resident(device, head_dim: int) -> int:
    if device.type != "cuda":
        return _CPU_BLOCKS
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count * (2 if head_dim <= 64 else 1)


def _refuse_under_capture(device) -> None:
    import torch

    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("under CUDA graph capture v5_parts needs its items of work: call it once with these sizes before")


# --- lists


def fits(modulus: int, size: int) -> bool:
    """Whether a box of TMA can take 64 rows in order of residues."""
    if modulus == 1:
        return True
    length = size // modulus
    return 1 <= modulus <= size and size % modulus == 0 and (length % tiles.TILE == 0 or tiles.TILE % length == 0)


def _whole(plan: Plan) -> _Lists:
    if plan.is_full:
        return _every_key(plan)
    masks = plan.batch * plan.heads
    made = plan.schedule, plan.fragments
    if plan.schedule is None:
        made = schedule.build(plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps, masks, plan.seq_q, plan.seq_k)
    return _compact(*made, 1, 1, plan.seq_q, plan.seq_k)


def _every_key(plan: Plan) -> _Lists:
    """One list of all tiles that every pair of query tiles takes."""
    import torch

    count, masks = -(-plan.seq_k // tiles.TILE), plan.batch * plan.heads
    index = torch.arange(count, dtype=torch.int32, device=plan.device).repeat(2)
    row_ptr = torch.tensor([0, count, 2 * count], dtype=torch.int32, device=plan.device)
    nothing = torch.zeros(0, tiles.TILE, dtype=torch.int64, device=plan.device)
    made = schedule.build(row_ptr, index, torch.full_like(index, -1), nothing, 1, 2 * tiles.TILE, plan.seq_k)
    one = _compact(*made, 1, 1, 2 * tiles.TILE, plan.seq_k)
    pairs = _pairs(plan.seq_q)
    return _Lists(1, 1, pairs, one.entries, one.fragments, one.table.repeat(masks * pairs, 0))


def _parts(plan: Plan) -> list[_Lists]:
    """The lists of the mask's parts; none where it has none, or sizes that do not go into boxes."""
    found = plan.mask.parts(plan.seq_q, plan.seq_k) if plan.mask is not None else ()
    if all(p.rows == p.keys == 1 for p in found) or not all(fits(p.rows, plan.seq_q) and fits(p.keys, plan.seq_k) for p in found):
        return []
    made = []
    for p in found:

        def keep(number, rows, columns, p=p):
            return tiles.evaluate(p.bound, number, rows, columns, plan.device, (p.rows, p.keys))

        masks = p.bound.sequences or 1
        (row_ptr, index, code, bitmaps), live, *_ = tile_lists(masks, plan.seq_q, plan.seq_k, keep, plan.device)
        if live or not made:
            steps = schedule.build(row_ptr, index, code, bitmaps, masks, plan.seq_q, plan.seq_k)
            made.append(_compact(*steps, p.rows, p.keys, plan.seq_q, plan.seq_k))
    return made


def _pairs(seq_q: int) -> int:
    return -(-seq_q // (2 * tiles.TILE))


def _compact(steps, fragments, rows: int, keys: int, seq_q: int, seq_k: int) -> _Lists:
    """Of a schedule as attention.cuh has it, without the padding, tiles as the places where they begin."""
    import torch

    head = steps[:, 0].cpu().numpy().astype(np.int64)
    body = steps[:, 1:].view(steps.shape[0], -1, 2, 4)
    body = body[torch.arange(body.shape[1], device=steps.device) < steps[:, :1, 0]]
    place = body[:, 0, :2] * tiles.TILE
    length = seq_k // keys  # with one residue all places are smaller
    body[:, 0] = torch.cat([place % length, place // length], 1)
    first = 2 * (np.cumsum(head[:, 0]) - head[:, 0])
    table = np.stack([first, head[:, 0], head[:, 2], head[:, 3]], 1)
    return _Lists(rows, keys, _pairs(seq_q), body.reshape(-1, 4), fragments, table)


def _joined(parts: list[_Lists]):
    """(schedule, fragments) of several parts in one tensor each."""
    import torch

    entries, base = [], 0
    for part in parts:
        some = part.entries.clone()
        codes = some[1::2]
        codes += base * (codes >= 0)
        entries.append(some)
        base += part.fragments.shape[0]
    return torch.cat(entries).contiguous(), torch.cat([p.fragments for p in parts]).contiguous()


# --- items


def _work(parts: list[_Lists], copies: int, blocks: int):
    """(predicted steps, description, items) of these parts one after another."""
    described, items, steps, entry = [], [], _PART * (len(parts) - 1), 0
    for number, part in enumerate(parts):
        rows, joins, long_count, slots, took = cut(part, copies, blocks, later=number > 0)
        rows[:, 2] += entry
        entry += part.entries.shape[0]
        first = sum(map(len, items))
        longest = int(rows[:, 4].max(initial=0))
        described.append([part.rows, part.keys, first, len(rows), long_count, first + len(rows), len(joins), slots, longest])
        items += [rows, joins]
        steps += took
    return steps, np.array(described, np.int64), np.concatenate(items).astype(np.int32)


def cut(part: _Lists, copies: int, blocks: int, later: bool = False):
    """(items, joins, how many items are long, slots, predicted steps) of a part whose masks ``copies`` (batch entry, head) pairs share each.

    Lists longer than a bound are cut into pieces of about equal length. The bound is the length of the longest list through 1, 2, 3, …
    pieces, whichever is predicted to be done first when blocks begin in order and each takes its steps and 1, a piece ½ more; joining takes
    1½ in all. Items are ordered by length; the long ones (more than half of the longest) of all heads go before the others.
    """
    longest, best = int(part.table[:, 1].max()), None
    for pieces in _CUTS:
        bound = -(-longest // pieces) if longest else 1
        made = _items(part, bound, later)
        took = _predict(*made, copies, blocks, later)
        if best is None or took < best[0]:
            best = took, made
        if bound <= 1:
            break
    took, (items, joins, long_count, slots) = best
    return items, joins, long_count, slots, took


def _items(part: _Lists, bound: int, later: bool):
    rows, joins, slots = [], [], 0
    for number, (first, steps, end, begin) in enumerate(part.table.tolist()):
        if later and not steps:
            continue  # its rows are there already
        mask, pair = divmod(number, part.pairs)
        pieces = max(1, -(-steps // bound))
        if pieces > 1:
            joins.append((pair, mask, slots, pieces, 0, 0, 0, 0))
        for i in range(pieces):
            low, high = i * steps // pieces, (i + 1) * steps // pieces
            ends = [min(max(at - low, 0), high - low) for at in (end, begin)]
            rows.append((pair, mask, first + 2 * low, slots + i if pieces > 1 else -1, high - low, *ends, 0))
        slots += pieces if pieces > 1 else 0
    rows = np.array(rows, np.int64).reshape(-1, 8)
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    long_count = int((2 * rows[:, 4] > rows[:, 4].max(initial=0)).sum())
    return rows, np.array(joins, np.int64).reshape(-1, 8), long_count, slots


def _predict(items, joins, long_count: int, slots: int, copies: int, blocks: int, later: bool) -> float:
    """When the last block is done, in steps."""
    took = items[:, 4] + _BLOCK + _PIECE * (items[:, 3] >= 0) + _MERGE * later
    end = _JOIN if len(joins) else 0.0
    if not len(items):
        return end
    if len(items) * copies > _SIMULATED:
        return end + max(took.sum() * copies / blocks + took.max() / 2, took.max())
    busy = [0.0] * blocks
    for group in (took[:long_count], took[long_count:]):
        for each in group.tolist() * copies:
            heapq.heapreplace(busy, busy[0] + each)
    return end + max(busy)
