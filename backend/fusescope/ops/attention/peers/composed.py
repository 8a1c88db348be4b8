"""Attention composed of three sparse operators: SDDMM, softmax by rows, SpMM, each going through memory with
the kept scores."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.ops.sparse.sddmm import prepare, sddmm
from fusescope.ops.sparse.sparse_softmax import sparse_softmax
from fusescope.ops.sparse.spmm import spmm


def make(inputs):
    """A call of the three on these inputs; the CSR structure of the mask is made here. Unsupported where
    sequences differ."""
    q, k, v, bias, mask = (inputs[name] for name in ("q", "k", "v", "bias", "mask"))
    if inputs.get("score") is not None:
        raise Unsupported("composed does not take this: a score expression")
    if mask.sequences not in (None, 1):
        raise Unsupported(
            "composed does not take this: a mask that differs among sequences (one structure is "
            "shared by all)"
        )
    structure = prepare(mask, q.shape[2], k.shape[2], q.device)
    group, scale, place = q.shape[1] // k.shape[1], q.shape[3] ** -0.5, structure.place()

    def run():
        keys, values = (
            (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        )
        scores = sddmm(q, keys, structure)
        if bias is not None:  # added to scaled scores
            scores = scores * scale + bias.expand(-1, q.shape[1], q.shape[2], k.shape[2]).flatten(
                2
            ).index_select(2, place)
        return spmm(
            structure, sparse_softmax(structure, scores, scale=scale if bias is None else 1.0), values
        )

    run.backend = "sddmm, sparse_softmax, spmm"
    return run
