"""Making memory that nobody wrote recognisable, so that a kernel which leaves elements unwritten cannot pass
by luck.

Outputs are allocated inside the operators, so the allocators are poisoned, not a buffer:
on CUDA every free block of torch's caching allocator is overwritten with 0xFF (NaN in every float format)
after a first call has put blocks of the right sizes there; on the CPU glibc is made to fill what it hands out
(M_PERTURB) with 0x7F (3.4e38 in fp32 and bf16, NaN in fp16). Where another malloc is preloaded, and for
outputs so small that glibc's per-thread cache hands them out unfilled, torch's own deterministic fill (NaN)
takes its place: it is second choice because it covers only allocations through ATen and makes torch.compile
compile again.
"""

from __future__ import annotations

import ctypes
import warnings
from contextlib import contextmanager, nullcontext

from fusescope.measure.timing import driver

_M_PERTURB = -6
_FILL = 0x7F
_SMALL = 2048  # bytes
_PROBES = 4096  # of them are looked at


@contextmanager
def poisoned(device: str, size: int, every: bool = False):
    """While inside, memory freshly allocated for tensors on ``device`` holds garbage; ``size``: bytes of the
    expected output.

    On CUDA the allocator's memory is poisoned once, before: what the call itself frees and gets again is not.
    ``every`` adds torch's deterministic fill there, which reaches each allocation, for callables that
    torch.compile has no part in.
    """
    if device.startswith("cuda"):
        _poison_cuda(device)
        with _deterministic_fill() if every else nullcontext():
            yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_PERTURB, _FILL ^ 0xFF)  # glibc fills with the complement
    try:
        if size > _SMALL and _is_garbage(size):
            yield
        else:
            with _deterministic_fill():
                yield
    finally:
        libc.mallopt(_M_PERTURB, 0)


def _poison_cuda(device: str) -> None:
    import torch

    torch.cuda.synchronize(device)
    index = torch.device(device).index or 0
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] != index or tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0):
            continue  # private pools belong to captured graphs, whose memory is in use between calls
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                driver.fill(block.get("address", address), block["size"], 0xFF)
            address += block["size"]
    torch.cuda.synchronize(device)


def _is_garbage(size: int) -> bool:
    import torch

    some = torch.empty(max(size, 1), dtype=torch.uint8)[:: max(1, size // _PROBES)]
    return bool((some == _FILL).float().mean() > 0.5)


@contextmanager
def _deterministic_fill():
    import torch

    # use_deterministic_algorithms would import torch.compile (2.6 s), and have it compile as no user does
    was = torch.get_deterministic_debug_mode()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which operations are not deterministic is not the question here
            yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.set_deterministic_debug_mode(was)
