"""What row-wise operators of several operands share: their two sizes, and one sentence for operands that do
not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.schema import size
from fusescope.ops.common.cases import check_tensors


def parameters(
    typical_rows: tuple[int, ...], typical_cols: tuple[int, ...], rows: int = 4096, cols: int = 768
) -> tuple:
    """rows and cols as keys of a case."""
    return (
        size("rows", rows, "rows (tokens)", 1 << 27, typical_rows),
        size("cols", cols, "elements per row", 1 << 27, typical_cols),
    )


def check(
    op: str, dtypes: tuple[str, ...], x: Any, same: Mapping[str, Any], vectors: Mapping[str, Any]
) -> None:
    """TypeError or ValueError unless x is a tensor of at least one dimension, ``same`` have its shape and
    ``vectors`` an element for each of a row, all of one dtype and device. What is None is left out."""
    given = {"x": x} | {name: t for name, t in (same | vectors).items() if t is not None}
    check_tensors(op, dtypes, **given)
    if x.dim() < 1:
        raise ValueError(f"{op} takes a tensor of at least one dimension, not a single number")
    for name, t in list(given.items())[1:]:
        if name in same and t.shape != x.shape:
            raise ValueError(f"{op} takes {name} of the shape of x, {tuple(x.shape)}; not {tuple(t.shape)}")
        if name in vectors and t.shape != x.shape[-1:]:
            raise ValueError(
                f"{op} takes {name} of shape ({x.shape[-1]},), one element for each of a row; not "
                f"{tuple(t.shape)}"
            )
