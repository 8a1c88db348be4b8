"""Peers that several operators share: torch.compile of the eager expression."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def compiled(function: Callable, *args: Any, mode: str | None = None) -> Callable[[], Any]:
    """``function(*args)`` through torch.compile, compiled for these arguments before it is returned.

    Dynamo keeps what it compiled on the function's code object and stops compiling after eight shapes of one; a code object of
    its own for every call here keeps a sweep from ending up, unnoticed, in eager mode. fullgraph turns any other way back to
    eager into an error. ``run.backend`` is "inductor".
    """
    import torch

    own = FunctionType(
        function.__code__.replace(co_name=f"{function.__name__}_compiled"),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    fast = torch.compile(own, fullgraph=True, dynamic=False, mode=mode)
    with torch.no_grad():
        fast(*args)

    def run():
        with torch.no_grad():
            return fast(*args)

    run.backend = "inductor" if mode is None else f"inductor, {mode}"
    return run


def with_blas(library: str, function: Callable, *args: Any) -> Callable[[], Any]:
    """``function(*args)`` with torch's preferred BLAS library set to "cublas" or "cublaslt" for the call, and set back after it."""
    import torch

    def run():
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library(library)
        try:
            return function(*args)
        finally:
            torch.backends.cuda.preferred_blas_library(before)

    run.backend = library
    return run
