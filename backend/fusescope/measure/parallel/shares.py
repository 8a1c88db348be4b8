"""The share of communication in a call, from one profiled call of every rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from fusescope.analysis.scaling.overlap import Shares, shares, union, without

CALLS = 3
_SENT = ("gloo:", "nccl:")  # what c10d calls its work on the CPU
_KERNELS = ("ncclDevKernel", "ncclKernel")
_WORK = ("aten::", "fusescope::")
_WAITS = ("c10d::", "_c10d_functional::")


def of_call(run: Callable[[], Any], device: str, before: Callable[[], None]) -> Shares:
    """Of the middle one of three profiled calls. ``before``: what all ranks do before each, a barrier.

    On a GPU the time of NCCL's kernels against that of all others; on the CPU gloo's work, which begins when
    it is given to gloo, against the operators, their dispatch included, without what they wait for gloo.
    """
    found = [_one(run, device, before) for _ in range(CALLS)]
    return sorted(found, key=lambda s: s.span_ms)[len(found) // 2]


def _one(run: Callable[[], Any], device: str, before: Callable[[], None]) -> Shares:
    from torch.profiler import ProfilerActivity, profile

    cuda = device.startswith("cuda")
    activities = [ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=[ProfilerActivity.CPU, *activities] if cuda else activities) as trace:
        before()
        start = time.perf_counter()
        with torch.profiler.record_function(_MARK):
            run()
            if cuda:
                torch.cuda.synchronize(device)
        span = (time.perf_counter() - start) * 1e3
    sent, worked = _intervals(trace.events(), cuda)
    return shares(span, sent, worked)


_MARK = "fusescope parallel call"


def _intervals(events: Any, cuda: bool) -> tuple[list, list]:
    """(communication, arithmetic) as intervals in ms within the marked call."""
    begin = next(e.time_range.start for e in events if e.name == _MARK)
    sent, worked, waited = [], [], []
    for event in events:
        at = (event.time_range.start / 1e3, event.time_range.end / 1e3)
        if event.time_range.start < begin:
            continue
        kernel = event.device_type == torch.autograd.DeviceType.CUDA
        if cuda:
            # annotations, ours and those of c10d and of the pipeline's schedule, span the gaps, too
            if kernel and not event.is_user_annotation:
                (sent if event.name.startswith(_KERNELS) else worked).append(at)
        elif event.name.startswith(_SENT):
            sent.append(at)
        elif event.name.startswith(_WAITS):
            waited.append(at)
        elif event.name.startswith(_WORK):
            worked.append(at)
    return sent, without(union(worked), union(waited))
