"""Work items of a mask for one call: what a kernel with ``// plan: parts`` is given instead of the plan.

A mask is taken as a whole or in its parts (lists.py), whichever is predicted to be faster; items.py cuts the
lists into items. cuda/attention/parts.h says what each number is.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fusescope.core.directives import GROUPS
from fusescope.ops.attention.plan import buffer
from fusescope.ops.attention.plan.plan import Plan, prepare
from fusescope.ops.attention.plan.plan_cache import PlanCache
from fusescope.ops.attention.work import items, lists
from fusescope.ops.attention.work.lists import Lists

MOST_COLUMNS = 128  # the widest heads that work items are laid out for
_CPU_TEAMS = 16  # where there is no GPU: kernels are emulated


@dataclass(frozen=True)
class WorkItems:
    """What a call is given instead of the plan: schedule int32 (entries, 4), fragments int32 (rows, 128)
    and items int32 (n, 4) on the device, parts of ``buffer``; parts int64 (parts, 9) on the host, which
    ``layout`` repeats. predicted: how long it takes, in steps of one KV tile (items.py); gain: the same where
    every list is taken whole, over that; build_ms: how long making all of it took."""

    parts: Any
    predicted: float
    gain: float
    build_ms: float
    buffer: Any
    layout: str
    schedule: Any
    fragments: Any
    items: Any

    @property
    def in_order(self) -> bool:
        """Whether keys are in their own order in all parts."""
        return bool((self.parts[:, 1] == 1).all())

    @property
    def bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


class PlanItems:
    """Of one plan and groups of so many query tiles: its lists as a whole and in parts, and the work items
    made of them so far."""

    def __init__(self, plan: Plan, group: int):
        begin = time.perf_counter()
        self.sizes, self.device = (plan.seq_q, plan.seq_k, plan.batch, plan.heads), plan.device
        # For rows that are computed again (cuda/attention/row_again.cuh).
        self.lists = {name: getattr(plan, name) for name in ("bitmaps", "row_ptr", "tile_index", "tile_code")}
        self.splits = [[lists.whole(plan, group)], lists.parts(plan, group)]
        self.build_ms = (time.perf_counter() - begin) * 1e3
        self.made: dict[tuple[int, int, int], WorkItems] = {}
        self._lock = threading.Lock()

    def of(self, key: tuple[int, int, int]) -> WorkItems:
        with self._lock:
            if key not in self.made:
                _refuse_under_capture(self.device)
                self.made[key] = self.make(*key)
            return self.made[key]

    def make(self, copies: int, workers: int, per_sm: int) -> WorkItems:
        """For ``copies`` of each mask and so many workers, per_sm of which share a multiprocessor."""
        import torch

        begin = time.perf_counter()
        made = [
            (*_one_after_another(split, self.sizes[2:], copies, workers, per_sm), split)
            for split in self.splits
            if split
        ]
        predicted, described, rows, split = min(made, key=lambda m: m[0])
        entries, fragments = lists.concatenated(split)
        arrays = self.lists | {
            "schedule": entries,
            "fragments": fragments,
            "items": torch.from_numpy(rows).to(self.device),
        }
        data, layout, views = buffer.join(arrays, self.sizes, self.device, described.flatten().tolist())
        if self.device.type == "cuda":  # the kernel may read items before earlier work on its stream is done
            torch.cuda.current_stream(self.device).synchronize()
        took = self.build_ms + (time.perf_counter() - begin) * 1e3
        gain = items.uncut(self.splits[0][0], copies, workers, per_sm) / predicted
        own = {name: views[name] for name in ("schedule", "fragments", "items")}
        return WorkItems(torch.from_numpy(described), predicted, gain, took, data, layout, **own)


def _plan_items(plan: Plan, group: int) -> PlanItems:
    _refuse_under_capture(plan.device)
    return PlanItems(plan, group)


_caches = {group: PlanCache(partial(_plan_items, group=group)) for group in GROUPS}


def of(
    plan: Plan, batch: int, heads: int, head_dim: int, workers: int | None = None, group: int = 2
) -> WorkItems:
    """The work items of a call on this plan, made for the first such call and cached next to the plan.

    workers: how many the device runs at once; None asks the device. group: the query tiles that the kernel
    takes together. Raises RuntimeError for new ones under CUDA graph capture, ValueError for lists that are
    too long.
    """
    return _caches[group].of(plan).of(_key(plan, batch, heads, head_dim, workers, group))


def cached(plan: Plan, batch: int, heads: int, head_dim: int, group: int = 2) -> WorkItems | None:
    """The same as ``of``, where it is made already."""
    found = _caches[group].known(plan)
    return None if found is None else found.made.get(_key(plan, batch, heads, head_dim, None, group))


def work(plan: Plan | None, q, k, group: int = 2) -> WorkItems:
    """What the operator is given instead of a plan for these tensors; plan None = every key."""
    plan = prepare(None, q.shape[2], k.shape[2], q.device) if plan is None else plan
    return of(plan, q.shape[0], q.shape[1], q.shape[3], group=group)


def per_sm(head_dim: int, group: int) -> int:
    """How many workers share a multiprocessor (cuda/attention/hopper_shared.cuh, teams)."""
    return 2 if head_dim <= 64 and group == 2 else 1


def resident(multiprocessors: int, head_dim: int, group: int) -> int:
    """How many workers a GPU runs at once."""
    return multiprocessors * per_sm(head_dim, group)


def _key(
    plan: Plan, batch: int, heads: int, head_dim: int, workers: int | None, group: int
) -> tuple[int, int, int]:
    """Copies of each mask, workers, and how many of these share a multiprocessor."""
    copies = batch * heads // (plan.batch * plan.heads)
    return copies, workers or _workers(plan.device, head_dim, group), per_sm(head_dim, group)


def _workers(device, head_dim: int, group: int) -> int:
    if device.type != "cuda":
        return _CPU_TEAMS
    import torch

    return resident(torch.cuda.get_device_properties(device).multi_processor_count, head_dim, group)


def _refuse_under_capture(device) -> None:
    import torch

    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "under CUDA graph capture kernels in parts need their work items: "
            "call it once with these sizes before"
        )


def _one_after_another(parts: list[Lists], masks: tuple[int, int], copies: int, workers: int, per_sm: int):
    """(predicted steps, description, rows of items and pieces) of these parts."""
    heads = masks[0] * masks[1] * copies
    described, rows, took, entry = [], [], items.PART * (len(parts) - 1), 0
    for number, part in enumerate(parts):
        made = items.make(part, masks, copies, workers, per_sm, later=number > 0, alone=len(parts) == 1)
        made.rows[:, 2] += entry
        entry += part.entries.shape[0]
        first = sum(map(len, rows))
        last = first + len(made.rows)
        rounds = len(made.rows) // workers
        numbers = [first, rounds, workers, last, len(made.pieces), heads, part.tiles]
        described.append([part.rows, part.keys, *numbers])
        rows += [made.rows, made.pieces]
        took += made.took
    return took, np.array(described, np.int64), np.concatenate(rows)
