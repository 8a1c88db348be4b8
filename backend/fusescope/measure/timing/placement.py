"""Where buffers lie is part of the noise: between rounds the inputs move, and with them results and graphs.

Equal kernels differ by up to 0.8 % where one reads and writes other addresses than the other, and a process
that never moves its buffers measures that difference again and again as if it were the kernel's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import torch

from fusescope.measure import failures

SLACK = 2 << 20  # bytes within which an input shifts: the size of a page of GPU memory
_ALIGNED = {"cpu": 64, "cuda": 512}  # bytes, as torch's allocators give
_COPY_BYTES_PER_S = 1e9  # a careful guess, until the first move has been timed
_CAPTURE_S = 0.05


class Placement:
    """Moves the tensors of ``inputs`` in place: each gets a new buffer at a random offset, with the same
    values, so that every implementation that was given the tensor uses the new one in its next call.

    Tensors that are not dense in the usual order stay where they are. ``cost_s``: about what the first move
    takes, in seconds; infinite once there was no room for the copy of an input.
    """

    def __init__(self, inputs: Mapping[str, Any], device: str, seed: int, graphs: int = 0):
        self._tensors = [t for t in inputs.values() if isinstance(t, torch.Tensor) and _movable(t)]
        self._device, self._random = device, random.Random(seed)
        self._step = _ALIGNED[device.split(":")[0]]
        self._spacer: torch.Tensor | None = None
        size = sum(t.numel() * t.element_size() for t in self._tensors)
        self.cost_s = size / _COPY_BYTES_PER_S + _CAPTURE_S * graphs

    def __call__(self) -> int:
        """By how many bytes the results are to shift, too: Sampler.moved takes it."""
        try:
            for tensor in self._tensors:
                tensor.data = self._elsewhere(tensor)
            self._spacer = self._bytes(
                self._shift()
            )  # what is allocated behind it, a result above all, shifts
        except (RuntimeError, MemoryError) as e:
            if not failures.is_out_of_memory(e):
                raise
            self.cost_s = math.inf
        return self._shift()

    def _elsewhere(self, tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.numel() * tensor.element_size()
        shift = self._shift()
        place = self._bytes(size + shift)[shift:].view(tensor.dtype).view(tensor.shape)
        return place.copy_(tensor)

    def _shift(self) -> int:
        return self._random.randrange(SLACK // self._step) * self._step

    def _bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)


def _movable(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.is_contiguous() and tensor.numel() > 0
