"""Is the result of several devices right: against the model in float64 on one device."""

from __future__ import annotations

from collections.abc import Mapping
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
        parts = world.gather(out.cpu() if placed.member and placed.output else None)
        if parts is None:
            return None
        return self._judge([p for p in parts if p is not None])

    def _judge(self, parts: list[torch.Tensor]) -> Outcome:
        """Parts of the batch in the order of the replicas."""
        out, expected = torch.cat(parts), self._expected
        if out.shape != expected.shape or str(out.dtype) != f"torch.{self._dtype}":
            return Outcome(
                None,
                f"the result is {tuple(out.shape)} in {out.dtype}, not {tuple(expected.shape)} in "
                f"{self._dtype}",
            )
        outcome = compare(out, expected, tolerance.tolerance(self._layers, self._dtype))
        if outcome.reason is None:
            off = float((out.double() - expected).norm() / expected.norm())
            limit = tolerance.allowed_norm(self._layers, self._dtype)
            if not off <= limit:
                return Outcome(
                    outcome.accuracy,
                    f"the result as a whole is off by {off:.3g} of its size, allowed is {limit:.2g}",
                )
        return outcome
