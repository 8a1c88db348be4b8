"""What a call of attention makes each kernel do, counted: what the cost model has prices for.

A kernel on tile lists, per grid:

    call        the launch itself
    keys        live elements x panels            what the row-wise kernel walks
    tiles       live tiles x panels / SMs         work of the whole grid, spread evenly
    partial     partial tiles / SMs               evaluating bitmaps
    longest     longest tile list x panels        the block that finishes last
    bound       max(tiles, longest)               the makespan that no order of blocks undercuts
    blocks      query tiles x panels / SMs        queries in, results out
    rounds      times that the blocks launched fill the GPU x panels

summed over batch and heads; a panel is 64 columns of head size. A kernel on
work items (work/parts.py):

    call        the launch itself
    steps       steps until the last worker has done, as predicted (work/items.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fusescope import masks
from fusescope.ops.attention.dispatch.kernel_sources import group, groups, sources, takes_work_items
from fusescope.ops.attention.plan.plan import Plan, prepare
from fusescope.ops.attention.work import parts

FEATURES = ("call", "keys", "tiles", "partial", "longest", "bound", "blocks", "rounds")
IN_PARTS = ("call", "steps")


def features_of(impl: str) -> tuple[str, ...]:
    """What a kernel has prices for, in their order."""
    return IN_PARTS if takes_work_items(impl) else FEATURES


def _rounds(impl: str, done: Counts, sms: int) -> int:
    """How often the blocks that a kernel launches fill the GPU, by the ``tiles:`` directives of its source;
    heads wider than 64 columns leave room for half as many."""
    room = sms if done.panels == 1 else max(1, sms // 2)
    tiles = next((v.tiles for v in sources("attention") if v.name == impl), ())
    per_sm, steps = done.blocks / sms, done.longest // 2 + 1
    resident = next((t.per_block * t.blocks for t in tiles if t.holds(per_sm, steps)), 1)
    return -(-done.blocks // (resident * room))


class Counts(NamedTuple):
    """A case as the models see it: counts over batch and heads; longest is tiles of the longest list, panels
    ceil(D / 64). in_parts: for each size of groups, its query tiles and the predicted steps of a kernel on
    work items for such groups; kernels for other groups are not to be chosen."""

    keys: int
    tiles: int
    partial: int
    longest: int
    blocks: int
    panels: int
    in_parts: tuple[tuple[int, float], ...] = ()

    @property
    def key(self) -> str:
        """What the mask and the sizes come to, as a text."""
        return " ".join(map(str, self[:-1]))

    def counted(self, impl: str) -> bool:
        """Whether it is known what the kernel does."""
        return not takes_work_items(impl) or group(impl) in dict(self.in_parts)

    def features(self, impl: str, sms: int) -> np.ndarray:
        """What the kernel does, in the order of ``features_of``."""
        if takes_work_items(impl):
            return np.array((1.0, dict(self.in_parts)[group(impl)]))
        tiles, longest = self.tiles * self.panels / sms, self.longest * self.panels
        rest = (
            self.keys * self.panels / 1e6,
            tiles,
            self.partial / sms,
            longest,
            max(tiles, longest),
            self.blocks * self.panels / sms,
            _rounds(impl, self, sms) * self.panels,
        )
        return np.array((1.0, *rest))


def counts(
    batch, heads, seq_q, head_dim, mask_count, live_elements, full_tiles, partial_tiles, longest
) -> Counts:
    """Of a call whose plan (of ``mask_count`` masks) has these figures."""
    copies = batch * heads / mask_count
    count = int(copies * (full_tiles + partial_tiles))
    blocks = batch * heads * -(-seq_q // 64)
    return Counts(
        int(copies * live_elements), count, int(copies * partial_tiles), longest, blocks, -(-head_dim // 64)
    )


def counts_of_case(values: Mapping, sms: int) -> Counts:
    """Of a complete case of the operator (see cases.validate) on a GPU of so many multiprocessors."""
    batch, heads, seq, seq_k, head_dim, mask = (
        values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim", "mask")
    )
    figures = _figures(mask, seq, seq_k)
    done = counts(batch, heads, seq, head_dim, *figures)
    if (
        figures[0] > 1 or head_dim > parts.MOST_COLUMNS
    ):  # as choice.py: masks of several sequences come and go
        return done
    sizes = (batch, heads, seq, seq_k, head_dim, sms)
    return done._replace(in_parts=tuple((g, _in_parts(mask, *sizes, g)) for g in groups(head_dim)))


def counts_of_call(q, k, plan: Plan | None, in_parts: Mapping[int, float]) -> Counts:
    """Of attention(q, k, …) with this plan (None: every key) and the predicted steps of its work items, by
    the query tiles of their groups."""
    batch, heads, seq_q, head_dim = q.shape
    seq_k = k.shape[2]
    k_tiles = -(-seq_k // 64)
    figures = (1, seq_q * seq_k, -(-seq_q // 64) * k_tiles, 0, k_tiles)
    if plan is not None:
        figures = _plan_figures(plan)
    return counts(batch, heads, seq_q, head_dim, *figures)._replace(in_parts=tuple(in_parts.items()))


def _plan_figures(plan: Plan) -> tuple[int, int, int, int, int]:
    return plan.batch * plan.heads, plan.live_elements, plan.full_tiles, plan.partial_tiles, plan.longest


@lru_cache(maxsize=256)
def _figures(mask: str, seq_q: int, seq_k: int) -> tuple[int, int, int, int, int]:
    return _plan_figures(_plan(mask, seq_q, seq_k))


@lru_cache(maxsize=1024)
def _in_parts(
    mask: str, batch: int, heads: int, seq_q: int, seq_k: int, head_dim: int, sms: int, group: int
) -> float:
    plan = _plan(mask, seq_q, seq_k)
    return parts.of(plan, batch, heads, head_dim, parts.resident(sms, head_dim, group), group).predicted


def _plan(mask: str, seq_q: int, seq_k: int):
    return prepare(masks.parse(mask), seq_q, seq_k)
