"""The CUDA driver API (libcuda) by ctypes, for the few things torch does not show: graph nodes, function
attributes, raw memset."""

from __future__ import annotations

import ctypes
from functools import cache


class DriverError(RuntimeError):
    """A driver call failed, or this driver lacks the function; the text names both."""


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise DriverError(f"the CUDA driver library cannot be opened: {e}") from None


def has(function: str) -> bool:
    """Whether this driver exports the function (cuFuncGetName came with CUDA 12.3)."""
    return hasattr(_library(), function)


def call(function: str, *args) -> None:
    """Call a driver function that returns CUresult; DriverError with the driver's own name of the error."""
    if not has(function):
        raise DriverError(f"this CUDA driver has no {function}")
    status = getattr(_library(), function)(*args)
    if status != 0:
        name = ctypes.c_char_p()
        _library().cuGetErrorName(status, ctypes.byref(name))
        raise DriverError(f"{function} failed with {(name.value or b'an unknown error').decode()} ({status})")


def fill(address: int, size: int, byte: int) -> None:
    """Set ``size`` bytes of device memory to ``byte``."""
    call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
