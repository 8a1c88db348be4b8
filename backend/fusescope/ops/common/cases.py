"""What the operators' ``validate`` and public functions share: complete cases, and one sentence for operands
that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.ops.base import Parameter, check_int

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to nearest: half the distance between neighbours just above a power of
two."""

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def complete(op: str, parameters: tuple[Parameter, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter's value, defaults filled in and whole numbers checked; ValueError for keys the operator
    does not have."""
    unknown = set(values) - {p.name for p in parameters}
    if unknown:
        raise ValueError(
            f"{op} takes {', '.join(p.name for p in parameters)}, not {', '.join(sorted(unknown))}"
        )
    found = {p.name: values.get(p.name, p.default) for p in parameters}
    return {p.name: check_int(p, found[p.name]) if p.kind == "int" else found[p.name] for p in parameters}


def check_tensors(op: str, dtypes: tuple[str, ...], **tensors: Any) -> None:
    """TypeError or ValueError unless all are tensors of one supported dtype on one CPU or CUDA device."""
    import torch

    first = None
    for name, t in tensors.items():
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{op} takes tensors; {name} is {type(t).__name__}")
        if first is None:
            first, first_name = t, name
            if str(t.dtype).removeprefix("torch.") not in dtypes:
                raise TypeError(
                    f"{op} takes {', '.join(dtypes)}; {name} is {str(t.dtype).removeprefix('torch.')}"
                )
        if t.dtype != first.dtype or t.device != first.device:
            raise ValueError(
                f"{op} takes tensors of one dtype and device; {first_name} is {first.dtype} on {first.device}, "
                f"{name} is {t.dtype} on {t.device}"
            )


def complete_rows(op, parameters, values) -> dict:
    """``complete`` for an operator over rows x cols, whose product is at most 2^33 elements; ValueError
    beyond."""
    values = complete(op, parameters, values)
    if values["rows"] * values["cols"] > 1 << 33:
        raise ValueError(f"rows times cols is at most 2^33, not {values['rows']} x {values['cols']}")
    return values
