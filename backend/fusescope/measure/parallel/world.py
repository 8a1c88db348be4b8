"""The processes of a parallel measurement: which one this is, its device, and how they agree.

Words between the ranks go through a group of their own over gloo, on the CPU, so that neither a barrier nor a
decision occupies a GPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE_S = 1800.0  # that a rank waits for another in a collective before it gives up
ALONE_S = 20.0  # that a rank whose call failed waits for the others before it takes itself to be alone


class World:
    """All ranks. store: a file that they share. device: "cpu" for all, or the first GPU ("cuda:0"), from
    which each rank counts its own. ``Stopped`` ends every rank where rank 0's ``check`` raises."""

    def __init__(self, device: str, rank: int, size: int, store: str):
        self.rank, self.size, self.cuda = rank, size, device.startswith("cuda")
        self.device = f"cuda:{int(device.partition(':')[2] or 0) + rank}" if self.cuda else "cpu"
        self.backend = "nccl" if self.cuda else "gloo"
        if self.cuda:
            torch.cuda.set_device(self.device)
        # drawing weights and comparing results are work of the CPU also where the model runs on a GPU
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
        patience = timedelta(seconds=PATIENCE_S)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self.cuda else "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=patience,
            device_id=torch.device(self.device) if self.cuda else None,
        )
        self._words = dist.new_group(backend="gloo", timeout=patience)
        self._meetings = Meetings(Path(store).parent, rank, size)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def barrier(self) -> None:
        self.wait()
        dist.barrier(group=self._words)

    def wait(self) -> None:
        """Until this rank's device has done its work."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def meet(self, failure: tuple[str, str] | None = None) -> None:
        """Before the ranks agree on a call in which each waits for the others. A rank whose call failed with
        ``failure`` (status, reason) raises Alone where the others do not come: they wait for it in a
        collective, which only its end can end."""
        if not self._meetings.come(ALONE_S if failure else None):
            raise Alone(*failure)

    def gather(self, value: Any) -> list[Any] | None:
        """What every rank says, by rank, at rank 0; None elsewhere."""
        found: list[Any] | None = [None] * self.size if self.first else None
        dist.gather_object(value, found, dst=0, group=self._words)
        return found

    def tensors(self, own: torch.Tensor | None) -> list[torch.Tensor]:
        """The tensors of the ranks that have one, by rank, at rank 0 (its own as it is, others on the CPU);
        elsewhere none. Sent as they are, where ``gather`` would make every rank send as much as the largest.
        """
        about = self.gather(None if own is None else (tuple(own.shape), own.dtype))
        if about is None:
            if own is not None:
                dist.send(own.cpu().contiguous(), 0, group=self._words)
            return []
        found = []
        for rank, known in enumerate(about):
            if known is None:
                continue
            if rank:
                part = torch.empty(known[0], dtype=known[1])
                dist.recv(part, rank, group=self._words)
            found.append(part if rank else own)
        return found

    def decide(self, work: Callable[[], Any]) -> Any:
        """What ``work`` gives at rank 0, at every rank. Where it raises there, it is raised at rank 0 and
        Stopped elsewhere."""
        said: list[Any] = [None]
        error = None
        if self.first:
            try:
                said = [(True, work())]
            except BaseException as e:
                said, error = [(False, None)], e
        dist.broadcast_object_list(said, src=0, group=self._words)
        if error is not None:
            raise error
        well, value = said[0]
        if not well:
            raise Stopped
        return value

    def decide_first(self, work: Callable[[], Any]) -> Any:
        """What ``work`` gives, at rank 0 alone (None elsewhere), once all have waited for it; raised as by
        ``decide``."""
        kept: list[Any] = []
        self.decide(lambda: kept.append(work()))
        return kept[0] if kept else None

    def end(self) -> None:
        dist.destroy_process_group()


class Meetings:
    """Who has come to which meeting, by files in a folder that all ranks share. Every rank comes to all."""

    def __init__(self, home: Path, rank: int, size: int):
        self._home, self._rank, self._size, self._count = home, rank, size, 0

    def come(self, patience_s: float | None) -> bool:
        """Come to the next meeting; whether all others come within the time, True at once without one."""
        self._count += 1
        (self._home / f"met-{self._count}-{self._rank}").touch()
        if patience_s is None:
            return True
        missing = [self._home / f"met-{self._count}-{rank}" for rank in range(self._size)]
        until = time.monotonic() + patience_s
        while missing := [file for file in missing if not file.exists()]:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


class Alone(Exception):
    """This rank alone failed, inside a call in which the others wait for it."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Stopped(Exception):
    """Rank 0 ended the job; it says why."""
