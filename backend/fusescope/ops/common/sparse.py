"""What the sparse operators share besides the structure: parameters of a case, checks, cost, choice of a
kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.core.schema import Parameter, complete, size
from fusescope.masks import counting
from fusescope.ops.base import Cost
from fusescope.ops.common.cases import BYTES, check_tensors
from fusescope.ops.common.structure import FORMATS, Structure, refuse_sequences

PARAMETERS = (
    size("batch", 1, "sequences", 1 << 16, (1, 2, 4, 8, 16)),
    size("heads", 12, "heads per sequence", 1 << 12, (1, 2, 4, 8, 12, 16, 32)),
    size("seq", 512, "rows: queries per sequence", 1 << 17, (128, 256, 512, 1024, 2048, 4096, 8192, 16384)),
    size(
        "seq_k",
        None,
        "columns: keys per sequence; as many as queries where left out",
        1 << 17,
        (128, 512, 2048, 4096),
        sweep=False,
    ),
    size("head_dim", 64, "head size", 1 << 12, (32, 64, 128, 256)),
    Parameter(
        "mask",
        "mask",
        "sliding_window",
        "which elements are kept: name[:key=value,…]; defaults depend on the length",
    ),
    Parameter(
        "format",
        "choice",
        "csr",
        "how the kept elements are stored: one by one, or as blocks with a side of 16, 32 or 64",
        choices=tuple(FORMATS),
    ),
)
"""The keys of a case that SDDMM and SpMM share."""


def validate(op: str, values, parameters: tuple[Parameter, ...] = PARAMETERS) -> dict:
    """The complete case of a sparse operator; mask in its canonical text. Raises ValueError as every
    operator's validate does."""
    case = complete(op, parameters, values, text=True)
    case["seq_k"] = case["seq_k"] or case["seq"]
    mask = masks.parse(case["mask"])
    mask.bind(case["seq"], case["seq_k"])
    refuse_sequences(mask)
    return case | {"mask": str(mask)}


def check(op: str, dtypes: tuple[str, ...], structure, **tensors) -> None:
    """TypeError or ValueError unless all are tensors of one supported dtype and ``structure`` is one, on
    their device; Unsupported where an operand requires a gradient that these forward kernels would not
    give."""
    import torch

    check_tensors(op, dtypes, **tensors)
    device = next(iter(tensors.values())).device
    if not isinstance(structure, Structure):
        raise TypeError(
            f"{op} takes a Structure made by prepare(mask, seq_q, seq_k, device), not "
            f"{type(structure).__name__}"
        )
    if structure.columns.device != device:
        raise ValueError(f"the structure is on {structure.columns.device}, the operands are on {device}")
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors.values()):
        raise Unsupported(
            f"{op} is forward only, but an input requires a gradient; call it under torch.no_grad()"
        )


def try_once(run, what: str) -> None:
    """Call a peer once; Unsupported with torch's words where torch does not do it for this dtype or
    device."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "beta state"
            run()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        if "CUDA error" in str(error):
            raise
        raise Unsupported(f"{what} does not take this: {str(error).splitlines()[0][:160]}") from None


def auto(family: str, structure: Structure, device) -> str:
    """The kernel that "auto" means: "cpu"; on CUDA the one for blocks for BSR, else the last of the ladder
    before it."""
    if device.type == "cpu":
        return _on_the_cpu(family)
    return "v3_blocks" if structure.block else {"sddmm": "v2_even_split", "spmm": "v2_balanced"}[family]


@cache
def _on_the_cpu(family: str) -> str:
    """Chosen once a process, which loads a library once: choosing reads the family's sources, each time."""
    from fusescope import kernels

    return kernels.choose(family, "cpu")


class Counts(NamedTuple):
    """Of a mask: kept elements, elements stored by the format, and stored elements of the longest row."""

    kept: int
    stored: int
    longest: int


def product_cost(values: Mapping[str, Any], dtype: str, moved: Callable[[int], tuple[int, int]]) -> Cost:
    """2·D operations a kept element (effective) or stored one (executed), summed over batch and heads.

    moved: stored elements of a head → (elements read, elements written) a head. The index lists, one set for
    all heads, are not counted.
    """
    heads, depth = values["batch"] * values["heads"], values["head_dim"]
    of = counts(values["mask"], values["seq"], values["seq_k"], values["format"])
    density = of.kept / (values["seq"] * values["seq_k"])
    notes = {"density": density, "kept elements per head": of.kept, "stored elements per head": of.stored}
    read, written = (BYTES[dtype] * heads * n for n in moved(of.stored))
    scores = values["seq"] * values["seq_k"]
    effective, run, dense = (2.0 * depth * n * heads for n in (of.kept, of.stored, scores))
    return Cost(effective, run, read, written, "vector", notes, dense)


@lru_cache(maxsize=256)
def counts(mask: str, seq_q: int, seq_k: int, form: str) -> Counts:
    """Counted without torch."""
    side = FORMATS[form]
    of = counting.counts(masks.parse(mask), seq_q, seq_k, side or 64)
    if not side:
        return Counts(of.kept, of.kept, of.longest)
    return Counts(of.kept, of.live * side * side, of.longest_in_tiles * side)
