"""What the operators' ``validate`` and public functions share: complete cases, and one sentence for operands
that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.schema import Parameter, complete

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Largest relative error of rounding to nearest: half the distance between neighbours just above a power of
two."""

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


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
                f"{op} takes tensors of one dtype and device; {first_name} is {first.dtype} on "
                f"{first.device}, "
                f"{name} is {t.dtype} on {t.device}"
            )


def complete_rows(op: str, parameters: tuple[Parameter, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """``complete`` for an operator over rows x cols, whose product is at most 2^33 elements; ValueError
    beyond."""
    values = complete(op, parameters, values, text=True)
    if values["rows"] * values["cols"] > 1 << 33:
        raise ValueError(f"rows times cols is at most 2^33, not {values['rows']} x {values['cols']}")
    return values


def complete_heads(op: str, parameters: tuple[Parameter, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """``complete`` for an operator with query heads and KV heads, as many of these as of those where they are
    left out; ValueError for heads that are no multiple of kv_heads."""
    values = complete(op, parameters, values, text=True)
    values["kv_heads"] = values["kv_heads"] or values["heads"]
    if values["heads"] % values["kv_heads"]:
        raise ValueError(
            f"heads must be a multiple of kv_heads; {values['heads']} is not one of {values['kv_heads']}"
        )
    return values
