"""Peers that several operators share: a torch expression, as it is and through torch.compile."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

from fusescope.ops.base import Peer


def late(module: str, name: str, *args: Any) -> Callable[[Any], Callable]:
    """``name(*args, inputs)`` of a module of fusescope.ops that imports torch, as a function of the inputs:
    the module is imported when it is called, so that a table of peers needs no torch."""

    def make(inputs):
        return getattr(importlib.import_module(f"fusescope.ops.{module}"), name)(*args, inputs)

    return make


def sum_in_fp32() -> None:
    """Products of 16-bit types are summed in fp32 throughout, as ours are, for the whole process.

    By default torch lets cuBLAS split the sum of a 16-bit product and add the parts in 16 bits. On an H200 a
    fifth of the elements of a 1024³ fp16 product then missed the tolerance, which is another computation, not
    a faster one.
    """
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def plain(function: Callable, *args: Any) -> Callable[[], Any]:
    """``function(*args)`` with products summed in fp32."""
    sum_in_fp32()
    return lambda: function(*args)


COMPILES = {"cpu": 2.0, "cuda": 0.5}
"""Peer.compiles of torch.compile: a further pointwise or reduction kernel by g++ on 2 cores, by Triton on an
H200's host."""
AUTOTUNES = {"cuda": 10.0}
"""The same with max-autotune, which on CUDA builds and times some twenty templates (4 to 25 s on that
host)."""


def compiled(function: Callable, *args: Any, mode: str | None = None) -> Callable[[], Any]:
    """``function(*args)`` through torch.compile, compiled for these arguments before it is returned.

    Dynamo keeps what it compiled on the function's code object and stops compiling after eight shapes of one;
    a code object of its own for every call here keeps a sweep from ending up, unnoticed, in eager mode.
    fullgraph turns any other way back to eager into an error. ``run.backend`` is "inductor".
    """
    import torch

    plain(function)
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


def torch_peers(
    function: Callable, arguments: Callable, idea: str, compiled_idea: str = "torch.compile of the same"
) -> dict[str, Peer]:
    """ "eager" and "compile": ``function`` on an operator's ``arguments``, as it is and through
    torch.compile."""
    return {
        "eager": Peer(lambda inputs: lambda: function(*arguments(inputs)[0]), idea),
        "compile": Peer(
            lambda inputs: compiled(function, *arguments(inputs)[0]), compiled_idea, compiles=COMPILES
        ),
    }


def with_blas(library: str, function: Callable, *args: Any) -> Callable[[], Any]:
    """``function(*args)`` with torch's preferred BLAS library set to "cublas" or "cublaslt" for the call, and
    set back after it."""
    import torch

    plain(function)

    def run():
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library(library)
        try:
            return function(*args)
        finally:
            torch.backends.cuda.preferred_blas_library(before)

    run.backend = library
    return run


def vllm_operators() -> Any:
    """torch.ops._C with vLLM's kernels, which its extension registers when it is imported."""
    import torch

    importlib.import_module("vllm._C")
    return torch.ops._C
