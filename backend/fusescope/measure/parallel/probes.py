"""What one device takes for the share of one rank, without any other: a rank's part of every layer, on
several batches. The measured part of a prediction for devices that are not there."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from fusescope.models.describe import layouts
from fusescope.models.parallel import split as splitting
from fusescope.models.parallel.fused import FusedShare
from fusescope.models.parallel.placed import base_of, caller
from fusescope.models.run.build import Model

_BUDGET_S, _FEWEST, _MOST, _WARM_UP = 0.4, 5, 50, 2
_DEGREES, _BATCHES = (1, 2, 4, 8), 4


def measure(
    attention: str,
    model: Model,
    inputs: Mapping[str, Any],
    alone: Any,
    wait: Callable[[], None],
    check: Callable[[], None],
) -> list[dict[str, Any]]:
    """[{"attention", "tp", "batch", "ms", "host_ms"}]: the median time of the layers of a rank on that batch,
    and of their launches (on a GPU; None on a CPU). alone: a group of this rank, so that what the launch of a
    sum over ranks costs is in it."""
    found, batch = [], inputs["input_ids"].shape[0]
    for degree in _degrees(model):
        run = _share(attention, model, inputs, degree, alone)
        for size in _batches(batch):
            check()
            ids = inputs["input_ids"][:size]
            ms, host_ms = _medians(lambda run=run, ids=ids: run(ids), wait)
            point = {"attention": attention, "tp": degree, "batch": size, "ms": ms}
            found.append(point | {"host_ms": host_ms if ids.is_cuda else None})
        del run
        gc.collect()
    return found


def _share(
    attention: str, model: Model, inputs: Mapping[str, Any], degree: int, alone: Any
) -> Callable[[torch.Tensor], Any]:
    """A call of what the first of ``degree`` ranks has, on token ids."""
    if attention == layouts.FUSED:
        return FusedShare(model, inputs, degree, 0, alone)
    base, call = base_of(model, attention), caller(attention, model, inputs)
    if degree > 1:
        splitting.divide(base, layouts.split_of(model.name), degree, 0, alone)
    return lambda ids: call(base, input_ids=ids)


def _degrees(model: Model) -> Iterator[int]:
    config = model.config
    counts = (config.heads, config.kv_heads or config.heads, config.ffn)
    return (d for d in _DEGREES if all(count % d == 0 for count in counts))


def _batches(batch: int) -> list[int]:
    """The batch and its halves, a few of them."""
    found = [batch]
    while found[-1] % 2 == 0 and len(found) < _BATCHES:
        found.append(found[-1] // 2)
    return found


def _medians(run: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds until the device has finished, and until the call has returned."""
    took: list[float] = []
    returned: list[float] = []
    begun = time.perf_counter()
    with torch.no_grad():
        for _ in range(_WARM_UP):
            run()
        while len(took) < _FEWEST or (time.perf_counter() - begun < _BUDGET_S and len(took) < _MOST):
            wait()
            start = time.perf_counter()
            run()
            returned.append((time.perf_counter() - start) * 1e3)
            wait()
            took.append((time.perf_counter() - start) * 1e3)
    return statistics.median(took), statistics.median(returned)
