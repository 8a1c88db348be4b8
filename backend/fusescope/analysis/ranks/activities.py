"""What a rank's device (or, without one, its host) did, as columns; and which of it is communication."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

COMPUTE, COMMUNICATION, MEMORY = range(3)
KINDS = ("compute", "communication", "memcpy/memset")
ABSENT = int(np.iinfo(np.int64).min)
_KERNEL = re.compile(
    r"^(?:void )?nccl.*Kernel|^mscclKernel|nvshmem|cross_device_reduce|multimem_all_|mscclpp::|deep_ep::"
    r"|^userbuffers_|(?<!block)(?<!warp)all_?reduce",
    re.IGNORECASE,
)
_HOST = re.compile(r"^(?:gloo|mpi|ucc|nccl):")
_EACH_WAITS = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")


@dataclass(frozen=True)
class Activities:
    """Of one rank, by start: absolute ns, int64. kind: COMPUTE …; stream: any number; launch: when the host
    launched it (ABSENT: unknown); step: the profiler's (ABSENT: none); name and collective (-1: none): places
    in ``names`` and ``collectives``."""

    begin: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    stream: np.ndarray
    launch: np.ndarray
    step: np.ndarray
    name: np.ndarray
    collective: np.ndarray
    names: list[str]
    collectives: list[dict]
    on_device: bool

    def __len__(self) -> int:
        return len(self.begin)


def is_communication(name: str, on_device: bool) -> bool:
    """Whether a kernel of that name, or a range of the host, communicates with other ranks."""
    return bool((_KERNEL if on_device else _HOST).search(name))


def each_waits(name: str) -> bool:
    """Whether no rank can leave a collective of that name before all have come: all-reduce, all-gather,
    reduce-scatter, all-to-all, barrier. A broadcast's root, or a sender, may."""
    return bool(_EACH_WAITS.search(plain(name)))


def plain(name: str) -> str:
    """A collective's name as all profilers may mean it: "allreduce" of "gloo:all_reduce"."""
    text = re.sub(r"^\w+:(?!:)", "", name.lower())
    m = re.search(r"nccl\w*kernel\w*?_(\w+?)(?:_(?:ring|tree|sum|nvls|coll)|\(|<|$)", text)
    return (m[1] if m else text).replace("_", "")
