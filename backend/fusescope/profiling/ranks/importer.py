"""Import of the traces of many ranks: each rank's tables in a folder of its own, and over them what the
ranks have in common.

artifacts/ranks/<rank>/artifacts/ holds what an import of that rank's file alone would leave. Above it:
rank_time, rank_idle (by stream), collectives (one row each), collective_ranks (one row per rank and
collective), rank_kernels, critical_path .parquet, and a summary.json whose "ranks" lists the ranks. Times
are ns on the clock of the first rank, where an offset to it was seen.
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fusescope.profiling.ranks import choose, one_rank, tables
from fusescope.profiling.ranks.one_rank import Process

_AT_ONCE = 4  # processes
_SMALL = 4 << 20  # bytes of a file that takes less time than a process takes to start
_LARGE = 1 << 30  # bytes of a file that is read alone
_POLL_S = 0.5
_READING = 0.9  # share of the work


def load(
    files: Mapping[int, Path],
    target: Callable[[str], Path],
    progress: Callable[[float, str], None],
    keep: bool = False,
    notes: Sequence[str] = (),
) -> dict:
    """Write everything and give the summary. files: rank → trace, of two ranks or more; target(name) names
    a file to write; progress may raise to stop; keep: the traces too. ValueError: one sentence on which
    file is wrong with what.
    """
    homes = {rank: target(f"ranks/{rank}/artifacts").parent for rank in files}
    told = _read(files, homes, keep, progress)
    progress(_READING, "comparing the ranks")
    about, more = _agreed(files, told)
    summary = tables.write(files, homes, about, target, progress, [*notes, *more])
    target("summary.json").write_text(json.dumps(summary, indent=1))
    return summary


def _read(
    files: Mapping[int, Path],
    homes: Mapping[int, Path],
    keep: bool,
    progress: Callable[[float, str], None],
) -> dict[int, dict]:
    """Rank → what its trace says apart from its events; a few processes at once, each on a file; small files
    here."""
    waiting, running, told = [], {}, {}
    for rank, file in files.items():
        if file.stat().st_size > _SMALL:
            waiting.append(rank)
            continue

        def here(share: float, text: str) -> None:
            progress(_READING * (len(told) + share) / len(files), f"{len(told)} of {len(files)} ranks read")

        told[rank] = one_rank.read(file, homes[rank], keep, here)
    cores = len(os.sched_getaffinity(0))
    try:
        with selectors.DefaultSelector() as ready:
            while waiting or running:
                while waiting and _room(running, files[waiting[0]], cores):
                    rank = waiting.pop(0)
                    running[rank] = Process(files[rank], homes[rank], keep)
                    ready.register(running[rank].process.stdout, selectors.EVENT_READ, rank)
                for key, _ in ready.select(_POLL_S):
                    rank, process = key.data, running[key.data]
                    if process.read():
                        continue
                    ready.unregister(process.process.stdout)
                    running.pop(rank).close()
                    if process.error:
                        raise ValueError(process.error)
                    told[rank] = process.about
                done = len(told) + sum(p.share for p in running.values())
                text = f"{len(told)} of {len(files)} ranks read"
                progress(_READING * done / len(files), text)
    finally:
        for process in running.values():
            process.close()
    return told


def _room(running: Mapping[int, Process], file: Path, cores: int) -> bool:
    if not running:
        return True
    large = [p.file for p in running.values() if p.file.stat().st_size > _LARGE]
    return len(running) < min(_AT_ONCE, cores) and not large and file.stat().st_size <= _LARGE


def _agreed(files: Mapping[int, Path], told: Mapping[int, dict]) -> tuple[dict[int, dict], list[str]]:
    """(rank → host as a number from 0 or None, world size or None, backend; notes). ValueError: a trace
    that is of another rank than its name says."""
    names: dict[str, int] = {}
    about, worlds = {}, set()
    for rank, file in files.items():
        info, host = told[rank].get("distributedInfo"), told[rank].get("host_name")
        own = choose.sound(info)
        if own is not None and own != rank:
            raise ValueError(f"{file.name} is named as rank {rank}, but its distributedInfo says rank {own}")
        info = info if isinstance(info, dict) else {}
        host = host if isinstance(host, str) and host else None
        world = info.get("world_size")
        world = world if type(world) is int and 0 < world < 1 << 20 else None
        backend = info.get("backend") if isinstance(info.get("backend"), str) else None
        number = None if host is None else names.setdefault(host, len(names))
        about[rank] = {"host": number, "world_size": world, "backend": (backend or "")[:40] or None}
        worlds.add(world)
    worlds -= {None}
    notes = []
    if len(worlds) > 1:
        notes.append(
            "the traces are of jobs of different size: "
            + ", ".join(map(str, sorted(worlds)))
            + " ranks in total; they may not belong together"
        )
    elif worlds and (size := worlds.pop()) > len(files):
        notes.append(f"{len(files)} of the job's {size} ranks were imported")
    return about, notes
