"""The cases that an operator's emulated kernels run on, and how one is run.

Shapes are as small as the ideas of the kernels allow: odd sizes, tails, every way a row is distributed,
every shape of tile. An operator without a table gets odd sizes of its own parameters, so that a new family is
emulated as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from fusescope import ops
from fusescope.core.sources import families, source_closure
from fusescope.measure.checking import check


@dataclass(frozen=True)
class Case:
    """values: of the operator's parameters. dtypes: how many of the operator's dtypes are tried, beginning
    with another one at every case. contiguous: None = every third case is not. copies: whether asynchronous
    copies come late or early; sms: multiprocessors of the device."""

    values: dict[str, Any]
    dtypes: int = 1
    contiguous: bool | None = None
    copies: str = "late"
    sms: int = 3


@dataclass(frozen=True)
class Emulation:
    """cases(impl) -> the cases of a kernel. execute(op, impl, case's values, dtype, contiguous, seed) -> what
    is wrong, or None."""

    cases: Callable[[str], Iterator[Case]]
    execute: Callable[..., str | None]


def through_function(op: str, impl: str, values: dict, dtype: str, contiguous: bool, seed: int) -> str | None:
    """By the operator's Python function, on its own inputs and against its own reference."""
    module = ops.load(op)
    case = check.Case(module, module.validate(values), dtype, "cpu", seed, contiguous)
    return case.verify(lambda: module.call(case.inputs, impl)).reason


def odd_sizes(op: str) -> Iterator[Case]:
    """One of the swept parameters 7 or 33 at a time, the others as small as they may be."""
    module = ops.load(op)
    swept = [p for p in module.PARAMETERS if p.sweep and p.kind == "int"]
    for p in swept:
        for size in (7, 33):
            values = {other.name: other.low or 1 for other in swept} | {p.name: size}
            try:
                module.validate(values)
            except ValueError:
                continue
            yield Case(values)


def copied(family: str, impl: str, values: dict, sms: tuple[int, int] = (3, 3)) -> Iterator[Case]:
    """The case with asynchronous copies that come late and, if the kernel has any, with such that come early.
    sms: multiprocessors in the two."""
    yield Case(values, sms=sms[0])
    includes = {file.name for file in source_closure(families((family,))[family].variant(impl).path)}
    if includes & {"async_copy.cuh", "hopper_tma.cuh"}:
        yield Case(values, copies="early", sms=sms[1])


def results(op: str, impl: str) -> Iterator[dict]:
    """What came of each case of a kernel. What it refuses is tried with the next dtype, then with contiguous
    tensors."""
    known = emulations().get(op) or Emulation(lambda impl: odd_sizes(op), through_function)
    dtypes = ops.load(op).DTYPES
    for number, case in enumerate(known.cases(impl)):
        os.environ["EMULATED_COPIES"], os.environ["EMULATED_SMS"] = case.copies, str(case.sms)
        strided = number % 3 == 0 if case.contiguous is None else not case.contiguous
        first = number + number // 3  # so that cases that are not contiguous have another dtype each
        turned = [dtypes[(first + i) % len(dtypes)] for i in range(len(dtypes))]
        left = case.dtypes
        for contiguous, dtype in product((False, True) if strided else (True,), turned):
            result = {
                "case": str(case),
                "dtype": dtype,
                "contiguous": contiguous,
                "wrong": None,
                "refused": None,
            }
            begin = time.perf_counter()
            try:
                result["wrong"] = known.execute(op, impl, case.values, dtype, contiguous, number)
            except RuntimeError as error:
                if "unsupported: " not in str(error):
                    raise
                result["refused"] = str(error).split("unsupported: ")[1].splitlines()[0]
            yield result | {"seconds": time.perf_counter() - begin}
            left -= result["refused"] is None
            if not left:
                break


def emulations() -> dict[str, Emulation]:
    """By operator, of every file of cases here that has some."""
    folder = Path(__file__).parent
    modules = [import_module(f"tests.emulator.{file.stem}") for file in sorted(folder.glob("cases_*.py"))]
    return {op: found for module in modules for op, found in getattr(module, "EMULATIONS", {}).items()}
