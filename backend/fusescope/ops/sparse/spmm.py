"""SpMM: a sparse matrix, whose kept elements a mask says, times a dense one."""

from __future__ import annotations

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.kernels import register_fakes
from fusescope.ops.base import Peer
from fusescope.ops.common import sparse as _shared
from fusescope.ops.common import structure as _structure
from fusescope.ops.common.matmul import accumulation_tolerance
from fusescope.ops.common.structure import Structure, prepare
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["Structure", "prepare", "spmm"]

NAME = "spmm"
TITLE = "Sparse times dense (SpMM)"
SUMMARY = (
    "out[r] = sum of values[t] · v[column of t] over the elements t that the mask keeps in row r, "
    "per head, in fp32."
)
FAMILY = "spmm"
PARAMETERS = _shared.PARAMETERS
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {d: accumulation_tolerance(257, d) for d in DTYPES}
_PIECE = 1 << 24  # elements of the dense matrix that the reference holds at once: 128 MiB of float64


def tolerance(values, dtype):
    """That of a product over as many terms as the longest row has stored elements."""
    longest = _shared.counts(values["mask"], values["seq"], values["seq_k"], values["format"]).longest
    return accumulation_tolerance(max(1, longest), dtype)


def validate(values):
    return _shared.validate(NAME, values)


def inputs(values, dtype, device, seed, contiguous=True):
    """values (B, H, *value_shape) with zeros at what is not kept, v (B, H, S_k, D) and the mask's structure
    on the device."""
    g = generator_for(device, seed)
    b, h, sq, sk, d = (values[n] for n in ("batch", "heads", "seq", "seq_k", "head_dim"))
    structure = prepare(masks.parse(values["mask"]), sq, sk, device, _structure.FORMATS[values["format"]])
    weights = random_tensor((b, h, *structure.value_shape), dtype, device, g, contiguous)
    if structure.block:
        weights.masked_fill_(~structure.keep(), 0)
    return {
        "structure": structure,
        "values": weights,
        "v": random_tensor((b, h, sk, d), dtype, device, g, contiguous),
    }


def arguments(inputs):
    """As spmm(structure, values, v) takes them."""
    return (inputs["structure"], inputs["values"], inputs["v"]), {}


def call(inputs, impl):
    return spmm(inputs["structure"], inputs["values"], inputs["v"], impl=impl)


def auto(inputs):
    return _shared.auto(FAMILY, inputs["structure"], inputs["v"].device)


def reference(inputs):
    """The dense product in float64, in pieces of rows: (B, H, S_q, D)."""
    import torch

    values, v, s = inputs["values"], inputs["v"].double(), inputs["structure"]
    side, rows = s.block or 1, s.row_offsets.numel() - 1
    out = torch.empty(*v.shape[:2], s.seq_q, v.shape[3], dtype=torch.float64, device=v.device)
    step = max(1, _PIECE // (v.shape[:2].numel() * s.seq_k * side))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        out[:, :, first * side : last * side] = s.dense(values, first, last).to(v.device).double() @ v
    return out


def cost(values, dtype):
    """2·D operations a kept element (effective) or stored one (executed); values and v once each. The index
    lists, one set for all heads, are not counted."""
    sq, sk, d = (values[n] for n in ("seq", "seq_k", "head_dim"))
    return _shared.product_cost(values, dtype, lambda stored: (stored + sk * d, sq * d))


def _eager(inputs):
    structure, values, v = inputs["structure"], inputs["values"], inputs["v"]
    if structure.block:
        return lambda: structure.dense(values) @ v
    place = structure.place()

    def run():
        full = values.new_zeros((*values.shape[:2], structure.seq_q * structure.seq_k))
        return (
            full.index_copy_(2, place, values).view(*values.shape[:2], structure.seq_q, structure.seq_k) @ v
        )

    return run


def _sparse(inputs):
    """torch's products with CSR or BSR tensors. On CUDA the heads of CSR lie on the diagonal of one large
    matrix, whose lists are made beforehand: torch has no product of a batch of CSR matrices of different
    values, and a call per head would time launches."""
    import torch

    s, values, v = inputs["structure"], inputs["values"], inputs["v"]
    heads = v.shape[0] * v.shape[1]
    if s.block and (s.seq_q % s.block or s.seq_k % s.block):
        raise Unsupported(
            f"torch's BSR tensors with sizes that are no multiples of the block; {s.seq_q} by "
            f"{s.seq_k} and {s.block}"
        )
    diagonal = _diagonal(s, heads) if v.is_cuda and not s.block else None

    def run():
        weights, rows = values.reshape(heads, *s.value_shape), v.reshape(heads, s.seq_k, -1)
        if diagonal:
            lists, size = diagonal
            out = torch.sparse_csr_tensor(
                *lists, weights.reshape(-1), size, check_invariants=False
            ) @ rows.flatten(0, 1)
        else:
            out = torch.stack([torch.sparse.mm(s.tensor(weights[i]), rows[i]) for i in range(heads)])
        return out.view(*v.shape[:2], s.seq_q, -1)

    _shared.try_once(run, f"torch's product with a sparse tensor of {v.dtype} on {v.device.type}")
    return run


def _diagonal(s, heads: int):
    """Row offsets, columns and size of a CSR matrix with ``heads`` copies of the structure on its
    diagonal."""
    import torch

    if heads * max(s.entries, s.seq_q, s.seq_k) >= 1 << 31:
        raise Unsupported(
            f"all heads in one CSR matrix need fewer than 2^31 entries; this case has {heads} × {s.entries}"
        )
    head = torch.arange(heads, dtype=torch.int32, device=s.device)[:, None]
    offsets = torch.cat(
        [(s.row_offsets[:-1] + head * s.entries).flatten(), s.row_offsets.new_tensor([heads * s.entries])]
    )
    return (offsets, (s.columns + head * s.seq_k).flatten()), (heads * s.seq_q, heads * s.seq_k)


PEERS = {
    "eager": Peer(_eager, "values put into a dense matrix of zeros, then the dense product"),
    "sparse": Peer(
        _sparse,
        "torch's product with CSR or BSR tensors (MKL on the CPU, fp32; cuSPARSE on CUDA)",
        skips=True,
    ),
}


def spmm(structure, values, v, *, impl="auto"):
    """The sparse matrix of ``values`` times v: (..., S_q, D) in v's dtype, accumulated in fp32; rows without
    elements are zeros.

    values: (..., entries) in the order of CSR, or (..., blocks, block, block) for BSR; v: (..., S_k, D);
    float32, float16 or bfloat16, CPU or CUDA, any strides (what is not dense in the last dimension is
    copied); forward only. structure: from ``prepare(mask, S_q, S_k, device, block)``, shared by all leading
    dimensions. CSR reads v at kept elements only; blocks of BSR are multiplied whole, so NaN in v at a column
    of a stored block reaches all rows of the block. impl: a kernel of cuda/spmm, or "auto": the best for the
    format. Raises TypeError and ValueError for what does not fit.
    """
    from fusescope import kernels

    _shared.check(NAME, DTYPES, structure, values=values, v=v)
    own = values.dim() - len(structure.value_shape)
    if v.dim() < 2 or own < 0 or values.shape[:own] != v.shape[:-2]:
        raise ValueError(
            f"spmm takes values (..., *value_shape) and v (..., S_k, D), not {tuple(values.shape)} "
            f"and {tuple(v.shape)}"
        )
    if (tuple(values.shape[own:]), v.shape[-2]) != (structure.value_shape, structure.seq_k):
        raise ValueError(
            f"the structure keeps values {structure.value_shape} over {structure.seq_k} keys; this call has "
            f"{tuple(values.shape[own:])} and {v.shape[-2]} keys"
        )
    if impl == "auto":
        impl = _shared.auto(FAMILY, structure, v.device)
    lists = (structure.row_offsets, structure.columns, structure.order)
    return kernels.call(
        NAME, values, v, *lists, structure.long_rows, structure.seq_q, structure.block, impl=impl
    )


def _fake(values, v, row_offsets, columns, order, long_rows, rows, block, impl):
    return v.new_empty((*v.shape[:-2], rows, v.shape[-1]))


register_fakes({"spmm": _fake})
