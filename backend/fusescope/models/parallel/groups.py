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


def mesh(ranks: tuple[int, ...], device: str) -> Any:
    """The group as a mesh; None at the ranks that are not in it. Every rank asks for it, as for the group."""
    from torch.distributed.device_mesh import DeviceMesh

    group = of(ranks)
    return DeviceMesh.from_group(group, device.split(":")[0]) if dist.get_rank() in ranks else None


class Groups:
    """Those of a layout over ranks 0 … ranks−1: ``tensor`` a mesh, ``stages`` a group; of the ranks that it
    does not use, none."""

    def __init__(self, layout: Layout, device: str):
        self.tensor = self.stages = None
        tp, block = layout.tp, layout.tp * layout.pp
        if tp > 1:
            for first in range(0, layout.ranks, tp):
                own = mesh(tuple(range(first, first + tp)), device)
                self.tensor = self.tensor if own is None else own
        if layout.pp > 1:
            for first in range(layout.ranks):
                if first % block < tp:
                    line = tuple(range(first, first + block, tp))
                    own = of(line)
                    self.stages = own if dist.get_rank() in line else self.stages
