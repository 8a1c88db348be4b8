"""The process groups of layouts, each made once: a communicator of NCCL takes memory of the GPU and its
making most of a second."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from fusescope.models.describe.layouts import Layout


@functools.cache
def of(ranks: tuple[int, ...]) -> Any:
    """The group of these ranks. Every rank of the world asks for it, members or not, and all in the same
    order: NCCL splits it from the world's communicator, which takes them all."""
    return dist.new_group(list(ranks))


def own(ranks: tuple[int, ...]) -> Any:
    """The group, None at the ranks that are not in it."""
    group = of(ranks)
    return group if dist.get_rank() in ranks else None


class Groups:
    """Those of a layout over ranks 0 … ranks−1: ``tensor`` and ``stages``; of the ranks that it does not use,
    none."""

    def __init__(self, layout: Layout):
        self.tensor = self.stages = None
        tp, block = layout.tp, layout.tp * layout.pp
        if tp > 1:
            for first in range(0, layout.ranks, tp):
                self.tensor = own(tuple(range(first, first + tp))) or self.tensor
        if layout.pp > 1:
            for first in range(layout.ranks):
                if first % block < tp:
                    self.stages = own(tuple(range(first, first + block, tp))) or self.stages
