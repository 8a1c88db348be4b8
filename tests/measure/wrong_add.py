"""Implementations of tensor add, most of them wrong on purpose: every one must be caught, and the right ones
must pass."""

import random
import signal
import sys
import time

import torch

from fusescope.core.errors import Unsupported

_kept = {}


def right(a, b):
    return torch.add(a, b)


def slower(a, b):
    time.sleep(0.002)
    return torch.add(a, b)


def unwritten(a, b):
    """Leaves the last elements as the allocator gave them."""
    out = torch.empty_like(a)
    n = a.numel() - 3
    torch.add(a[:n], b[:n], out=out[:n])
    return out


def unwritten_after_luck(a, b):
    """As above, behind a freed buffer that held the right result: what a test without poison does not see."""
    lucky = torch.add(a, b)
    del lucky
    return unwritten(a, b)


def off_by_one(a, b):
    return a + torch.roll(b, 1)


def last_element(a, b):
    out = a + b
    out[-1] = 0
    return out


def ignores_strides(a, b):
    """Reads its inputs as if they were contiguous, as a kernel with raw pointers does."""
    x, y = (torch.as_strided(t, t.shape, torch.empty(t.shape, device="meta").stride()) for t in (a, b))
    return x + y


def mutates(a, b):
    out = a + b
    a[0] = 7
    return out


def not_a_number(a, b):
    out = a + b
    out[out.numel() // 2] = float("nan")
    return out


def infinite(a, b):
    out = a + b
    out[0] = float("-inf")
    return out


def remembers(a, b):
    """Computes once and answers from memory for every later input of that shape."""
    return _kept.setdefault(a.shape, a + b).clone()


def coarse(a, b):
    return (a.half() + b.half()).to(a.dtype)


def other_dtype(a, b):
    return (a + b).double()


def other_shape(a, b):
    return (a + b)[None]


def not_a_tensor(a, b):
    return [a + b]


def out_of_memory(a, b):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB.")


def out_of_memory_later(a, b):
    _kept["calls"] = _kept.get("calls", 0) + 1
    if _kept["calls"] > 6:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB.")
    return a + b


def unsupported(a, b):
    raise Unsupported("sizes that are odd are not supported, only even ones")


def refuses_strides(a, b):
    if not (a.is_contiguous() and b.is_contiguous()):
        raise ValueError("only contiguous tensors are taken")
    return a + b


def breaks(a, b):
    raise RuntimeError("an index ran out of range\nand a second line")


def breaks_on_strides(a, b):
    if not a.is_contiguous():
        raise RuntimeError("view size is not compatible")
    return a + b


def right_at_first(a, b):
    """Right for 20 calls, wrong afterwards."""
    _kept["later"] = _kept.get("later", 0) + 1
    return a + b if _kept["later"] <= 20 else a - b


def wrong_now_and_then(a, b):
    """Right in the first ten calls, then wrong in 3 %, at random."""
    _kept["now and then"] = _kept.get("now and then", 0) + 1
    return a - b if _kept["now and then"] > 10 and random.random() < 0.03 else a + b


def mutates_later(a, b):
    out = a + b
    _kept["mutations"] = _kept.get("mutations", 0) + 1
    if _kept["mutations"] > 30:
        a[0] = 7
    return out


def exits(a, b):
    sys.exit("nothing more to do")


def exits_later(a, b):
    _kept["exits"] = _kept.get("exits", 0) + 1
    if _kept["exits"] > 6:
        raise SystemExit(3)
    return a + b


def interrupts(a, b):
    raise KeyboardInterrupt


def interrupts_itself(a, b):
    """As the user's Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)
    return a + b


def sets_threads(a, b):
    """Right, and changes the threads of all that follow."""
    torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1)
    return a + b
