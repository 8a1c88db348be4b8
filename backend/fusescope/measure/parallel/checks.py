"""Is the result of several devices right: against the model in float64 on one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fusescope.measure.checking.check import Outcome, compare
from fusescope.measure.parallel.world import World
from fusescope.models.parallel import placed as placing
from fusescope.models.parallel.placed import Placed
from fusescope.models.run import tolerance


def fresh(inputs: Mapping[str, Any], vocab: int, seed: int) -> None:
    """Token ids redrawn, in place; the same on every rank. Results of earlier calls are wrong from
    here."""
    ids = inputs["input_ids"]
    drawn = torch.randint(1, vocab, tuple(ids.shape), generator=torch.Generator().manual_seed(seed + 7919))
    ids.copy_(drawn)


class Reference:
    """The result in float64 at rank 0, for the inputs as they were when it was made."""

    def __init__(self, world: World, model: Any, inputs: Mapping[str, Any]):
        self._world, self._model = world, model
        self._layers, self._dtype = inputs["case"]["layers"], model.dtype
        self._expected = world.decide_first(lambda: placing.reference(model, inputs))

    def compare(self, placed: Placed) -> Outcome | None:
        """The outcome of a fresh call at rank 0, None elsewhere; all ranks call it."""
        world = self._world
        world.barrier()
        out = placed.run() if placed.member else None
        world.wait()
        parts = world.tensors(out if placed.member and placed.output else None)
        return self._outcome(parts) if world.first else None

    def _outcome(self, parts: list[torch.Tensor]) -> Outcome:
        """Parts of the batch in the order of the replicas; compared on this rank's device, where it has the
        memory."""
        shape, dtype = tuple(self._expected.shape), getattr(torch, self._dtype)
        found = (sum(p.shape[0] for p in parts), *parts[0].shape[1:])
        if found != shape or any(p.dtype != dtype for p in parts):
            return Outcome(None, f"the result is {found} in {parts[0].dtype}, not {shape} in {self._dtype}")
        allowed = tolerance.tolerance(self._layers, self._dtype)
        allowed = replace(allowed, norm=tolerance.allowed_norm(self._layers, self._dtype))
        try:
            return compare(torch.cat([p.to(self._world.device) for p in parts]), self._expected, allowed)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        return compare(torch.cat([p.cpu() for p in parts]), self._expected, allowed)
