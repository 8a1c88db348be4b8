"""Softmax over the kept elements of each row of a sparse matrix, bound by memory."""

from __future__ import annotations

from fusescope import masks
from fusescope.kernels import register_fakes
from fusescope.ops.base import Peer
from fusescope.ops.common import softmax_rows
from fusescope.ops.common import sparse as _shared
from fusescope.ops.common.structure import Structure, prepare
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["Structure", "prepare", "sparse_softmax"]

NAME = "sparse_softmax"
TITLE = "Softmax of sparse rows"
SUMMARY = (
    "out[t] = exp(x[t] - max) / sum, maximum and sum over the elements that the mask keeps in the "
    "row of t, per head."
)
FAMILY = "sparse_softmax"
PARAMETERS = tuple(p for p in _shared.PARAMETERS if p.name not in ("head_dim", "format"))
DTYPES, TOLERANCE = softmax_rows.DTYPES, softmax_rows.TOLERANCE


def validate(values):
    return _shared.validate(NAME, values, PARAMETERS)


def inputs(values, dtype, device, seed, contiguous=True):
    """values (B, H, nnz) and the mask's CSR structure on the device."""
    structure = prepare(masks.parse(values["mask"]), values["seq"], values["seq_k"], device)
    shape = (values["batch"], values["heads"], structure.entries)
    return {
        "structure": structure,
        "values": random_tensor(shape, dtype, device, generator_for(device, seed), contiguous),
    }


def arguments(inputs):
    """As sparse_softmax(structure, values) takes them."""
    return (inputs["structure"], inputs["values"]), {}


def call(inputs, impl):
    return sparse_softmax(inputs["structure"], inputs["values"], impl=impl)


def reference(inputs):
    """Row by row of equal length in float64: (B, H, nnz)."""
    import torch

    x, s = inputs["values"].double(), inputs["structure"]
    offsets = s.row_offsets.to(x.device).long()
    lengths = offsets[1:] - offsets[:-1]
    out = torch.empty_like(x)
    for length in torch.unique(lengths[lengths > 0]).tolist():
        at = offsets[:-1][lengths == length][:, None] + torch.arange(length, device=x.device)
        out[..., at] = torch.softmax(x[..., at], -1)
    return out


def cost(values, dtype):
    """Five operations a kept element; it is read and written once. The index lists, one set for all heads,
    are not counted."""
    kept = _shared.counts(values["mask"], values["seq"], values["seq_k"], "csr").kept
    return softmax_rows.cost_of(kept * values["batch"] * values["heads"], dtype)


def _eager(inputs):
    """Maximum and sum of each row by scattered reductions, in fp32 as the kernels have them."""
    import torch

    x, s = inputs["values"], inputs["structure"]
    row = s.row_of.long().expand(x.shape)

    def run():
        wide = x.float()
        rows = (*x.shape[:2], s.seq_q)
        top = wide.new_full(rows, float("-inf")).scatter_reduce_(2, row, wide, "amax")
        e = torch.exp(wide - top.gather(2, row))
        return (e / torch.zeros_like(top).scatter_add_(2, row, e).gather(2, row)).to(x.dtype)

    return run


def _sparse(inputs):
    """torch.sparse.softmax, which takes COO tensors; the coordinates of a head are made outside of the
    call."""
    import torch

    x, s = inputs["values"], inputs["structure"]
    heads = x.shape[0] * x.shape[1]
    at = torch.stack([s.row_of.long(), s.columns.long()])

    def run():
        flat = x.reshape(heads, -1)
        of_head = [
            torch.sparse_coo_tensor(at, v, (s.seq_q, s.seq_k), is_coalesced=True, check_invariants=False)
            for v in flat
        ]
        return torch.stack([torch.sparse.softmax(m, 1).values() for m in of_head]).view(x.shape)

    _shared.try_once(run, f"torch.sparse.softmax of {x.dtype} on {x.device.type}")
    return run


PEERS = {
    "eager": Peer(_eager, "scatter_reduce, exp, scatter_add and gathers in fp32"),
    "sparse": Peer(_sparse, "torch.sparse.softmax on COO, head by head"),
}


def sparse_softmax(structure, values, *, scale=1.0, impl="auto"):
    """Softmax of scale · values over the kept elements of each row: (..., nnz) in the dtype of values, summed
    in fp32.

    values: (..., nnz) in the order of CSR, float32, float16 or bfloat16, CPU or CUDA, any strides; forward
    only. structure: CSR, from ``prepare(mask, S_q, S_k, device)``, shared by all leading dimensions. impl: a
    kernel of cuda/sparse_softmax, or "auto": the last of the ladder. Raises TypeError and ValueError for what
    does not fit.
    """
    from fusescope import kernels

    _shared.check(NAME, DTYPES, structure, values=values)
    if structure.block or values.dim() < 1 or values.shape[-1] != structure.entries:
        kind = f"BSR blocks of {structure.block}" if structure.block else f"{structure.entries} elements"
        raise ValueError(
            f"sparse_softmax takes values (..., nnz) of a CSR structure, not {tuple(values.shape)} "
            f"for one of {kind}"
        )
    return kernels.call(NAME, values, structure.row_offsets, structure.order, float(scale), impl=impl)


def _fake(values, row_offsets, order, scale, impl):
    return values.new_empty(values.shape)


register_fakes({"sparse_softmax": _fake})
