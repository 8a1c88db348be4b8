"""Collecting a torch.profiler trace of one repeated call: collecting only, tables are in ``kernel_table``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def collect(
    call: Callable[[], object],
    path: Path,
    device: str,
    wait: int = 1,
    warmup: int = 2,
    active: int = 5,
    before_step: Callable[[], None] = lambda: None,
    memory: bool = False,
) -> dict[str, int]:
    """Profile ``active`` calls after ``wait`` unprofiled and ``warmup`` discarded ones; the Chrome trace goes
    to ``path``.

    path ends in .json or .json.gz. device: "cpu" or "cuda:0". before_step is called ahead of every step (a
    place to raise from). memory: allocations become events of the trace, too. Gives FLOP by operator name
    over the active steps: they are in no Chrome trace. The device is synchronised before the first step,
    around the active ones and after each warm-up, so that no kernel slips into a neighbour's window.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    on_gpu = device != "cpu"

    def settle() -> None:
        if on_gpu:
            torch.cuda.synchronize(device)

    flop: dict[str, int] = {}

    def keep(profiler) -> None:
        for event in profiler.key_averages():
            if event.flops:
                flop[event.key] = int(event.flops)
        profiler.export_chrome_trace(str(path))  # a profile exports once

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    plan = schedule(wait=wait, warmup=warmup, active=active, repeat=1)
    settle()
    options = {"record_shapes": True, "with_flops": True, "profile_memory": memory}
    with profile(activities=activities, schedule=plan, on_trace_ready=keep, **options) as profiler:
        steps = wait + warmup + active
        for step in range(steps):
            before_step()
            call()
            if step < wait + warmup or step == steps - 1:
                settle()
            profiler.step()
    return flop
