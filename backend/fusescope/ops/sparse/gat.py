"""Graph attention: edge scores, softmax over neighbours and the weighted sum of their features in one pass,
bound by memory."""

from __future__ import annotations

import math
from functools import lru_cache

from fusescope import masks
from fusescope.core.schema import Parameter, complete, size
from fusescope.kernels import register_fakes
from fusescope.masks import counting
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common import sparse as _shared
from fusescope.ops.common.cases import BYTES
from fusescope.ops.common.structure import Structure, prepare
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["Structure", "gat", "prepare"]

NAME = "gat"
TITLE = "Graph attention"
SUMMARY = (
    "out[i] = Σ softmax over neighbours j (LeakyReLU(left · x[i] + right · x[j])) x[j], per head; "
    "nodes without one get zeros."
)
FAMILY = "gat"
PARAMETERS = (
    size("seq", 4096, "nodes of the graph", 1 << 17, (128, 512, 1024, 4096, 16384)),
    size("heads", 8, "heads", 1 << 12, (1, 2, 4, 8, 16)),
    size("head_dim", 64, "features per head", 256, (8, 16, 32, 64, 128, 256)),
    Parameter(
        "mask",
        "mask",
        "random:density=0.01",
        "the graph: which nodes j (columns) are neighbours of node i (rows)",
    ),
)
DTYPES = ("float32", "float16", "bfloat16")
SLOPE = 0.2  # of the paper

_UNITS = {"float32": 256 * 2.0**-24, "float16": 32 * 2.0**-11, "bfloat16": 32 * 2.0**-8}
_WHY = "as attention: scores of size up to 7 rounded where they are stored, weights, and output once each"
TOLERANCE = {t: Tolerance(u, u, f"{_WHY}; a node with one neighbour") for t, u in _UNITS.items()}


def tolerance(values, dtype):
    """It shrinks with the outputs, which average over the neighbours: scores have variance 2, so n of them
    leave sqrt(e^2 / n)."""
    fewest = _fewest(values["mask"], values["seq"])
    size = min(1.0, math.sqrt(math.exp(2) / max(fewest, 1)))
    return Tolerance(_UNITS[dtype] * size, _UNITS[dtype], f"{_WHY}; nodes with {fewest} neighbours and more")


@lru_cache(maxsize=64)
def _fewest(mask: str, nodes: int) -> int:
    """Neighbours of the node with the fewest, of those with any."""
    return counting.counts(masks.parse(mask), nodes, nodes).fewest


def validate(values):
    case = complete(NAME, PARAMETERS, values, text=True)
    mask = masks.parse(case["mask"])
    mask.bind(case["seq"])
    if mask.sequences not in (None, 1):
        raise ValueError(f"a graph is one mask; {mask} differs among {mask.sequences} sequences")
    return case | {"mask": str(mask)}


def inputs(values, dtype, device, seed, contiguous=True):
    """x (N, H, F), left and right (H, F) so small that scores have variance 1 each, and the graph's CSR
    structure."""
    g = generator_for(device, seed)
    n, h, f = values["seq"], values["heads"], values["head_dim"]
    x = random_tensor((n, h, f), dtype, device, g, contiguous)
    left, right = (random_tensor((h, f), dtype, device, g, contiguous).mul_(f**-0.5) for _ in "lr")
    return {
        "x": x,
        "left": left,
        "right": right,
        "structure": prepare(masks.parse(values["mask"]), n, n, device),
    }


def arguments(inputs):
    """As gat(x, left, right, structure) takes them."""
    return (inputs["x"], inputs["left"], inputs["right"], inputs["structure"]), {}


def call(inputs, impl):
    return gat(inputs["x"], inputs["left"], inputs["right"], inputs["structure"], impl=impl)


def reference(inputs):
    """The formula in float64 on dense scores, in pieces of rows: (N, H, F)."""
    import torch

    x, s = inputs["x"].double().transpose(0, 1), inputs["structure"]
    own, other = ((x * inputs[side].double()[:, None]).sum(-1) for side in ("left", "right"))
    out = torch.zeros_like(x)
    step = max(1, (1 << 24) // (x.shape[0] * x.shape[1]))
    ones = torch.ones(s.entries, dtype=torch.bool, device=x.device)
    for first in range(0, x.shape[1], step):
        last = min(first + step, x.shape[1])
        keep = s.dense(ones, first, last)
        scores = torch.nn.functional.leaky_relu(own[:, first:last, None] + other[:, None], SLOPE)
        weights = scores.masked_fill_(~keep, float("-inf")).softmax(-1).nan_to_num_()
        out[:, first:last] = weights @ x
    return out.transpose(0, 1)


def cost(values, dtype):
    """Two products of 2·F operations an edge and head, and two a node; features once in and once out. Index
    lists are not counted."""
    kept = _shared.counts(values["mask"], values["seq"], values["seq"], "csr").kept
    size = BYTES[dtype] * values["heads"] * values["head_dim"]
    flop = 4.0 * values["heads"] * values["head_dim"] * (kept + values["seq"])
    notes = {"edges": kept, "edges per node": kept / values["seq"]}
    return Cost(flop, flop, size * (values["seq"] + 2), size * values["seq"], "vector", notes)


def _edge_scores(inputs):
    """(E, H) in fp32, in the order of CSR."""
    import torch

    x, s = inputs["x"], inputs["structure"]
    own, other = ((x * inputs[side]).sum(-1, dtype=torch.float32) for side in ("left", "right"))
    return torch.nn.functional.leaky_relu(
        own.index_select(0, s.row_of) + other.index_select(0, s.columns), SLOPE
    )


def _eager(inputs):
    """Edge by edge, as graph libraries do it: gathered scores, scattered maximum and sums, gathered features,
    scattered sum."""
    import torch

    x, s = inputs["x"], inputs["structure"]

    def run():
        e = _edge_scores(inputs)
        row = s.row_of.long()[:, None].expand_as(e)
        top = e.new_full((s.seq_q, e.shape[1]), float("-inf")).scatter_reduce_(0, row, e, "amax")
        e = torch.exp(e - top.index_select(0, s.row_of))
        weights = e / torch.zeros_like(top).scatter_add_(0, row, e).index_select(0, s.row_of)
        gathered = weights[..., None] * x.index_select(0, s.columns)
        return (
            torch.zeros(x.shape, dtype=torch.float32, device=x.device)
            .index_add_(0, s.row_of, gathered)
            .to(x.dtype)
        )

    return run


def _dense(inputs):
    """All pairs of nodes, softmax with the graph as a mask, matmul; rows without a neighbour are set to
    zero."""
    import torch

    x, s = inputs["x"], inputs["structure"]
    dead = ~s.dense(torch.ones(s.entries, dtype=torch.bool, device=x.device))
    empty = dead.all(-1)

    def run():
        flat = x.transpose(0, 1)
        own, other = ((flat * inputs[side][:, None]).sum(-1) for side in ("left", "right"))
        scores = torch.nn.functional.leaky_relu(own[:, :, None] + other[:, None], SLOPE).masked_fill_(
            dead, float("-inf")
        )
        return (scores.softmax(-1).masked_fill_(empty[:, None], 0) @ flat).transpose(0, 1).contiguous()

    return run


def _composed(inputs):
    """This project's softmax of sparse rows and SpMM, with the scores of the edges through memory."""
    from fusescope.ops.sparse.sparse_softmax import sparse_softmax
    from fusescope.ops.sparse.spmm import spmm

    x, s = inputs["x"], inputs["structure"]

    def run():
        weights = sparse_softmax(s, _edge_scores(inputs).t().to(x.dtype))
        return spmm(s, weights, x.transpose(0, 1)).transpose(0, 1).contiguous()

    run.backend = "gathers, sparse_softmax, spmm"
    return run


PEERS = {
    "eager": Peer(_eager, "gathers and scatters over the list of edges, sums in fp32"),
    "dense": Peer(_dense, "scores of all pairs of nodes, masked softmax, matmul"),
    "composed": Peer(_composed, "this project's softmax of sparse rows and SpMM, scores through memory"),
}


def gat(x, left, right, structure, *, negative_slope=SLOPE, impl="auto"):
    """Graph attention without dropout or bias: (N, H, F) in the dtype of x, summed in fp32; forward only.

    x: projected features (N, H, F), F from 1 to 256; left, right: (H, F), the two halves of the attention
    vector. structure: the graph as CSR, square, from ``prepare(mask, N, N, device)``, where a mask or bool
    (N, N) matrix says which nodes (columns) are neighbours of a node (row). negative_slope: of LeakyReLU.
    impl: a kernel of cuda/gat, or "auto": the last of the ladder. Raises TypeError and ValueError for what
    does not fit, Unsupported for more features.
    """
    from fusescope import kernels

    _shared.check(NAME, DTYPES, structure, x=x, left=left, right=right)
    if x.dim() != 3 or 0 in x.shape or left.shape != right.shape or tuple(left.shape) != tuple(x.shape[1:]):
        raise ValueError(
            f"gat takes x (N, H, F) and left, right (H, F), not {tuple(x.shape)}, "
            f"{tuple(left.shape)} and {tuple(right.shape)}"
        )
    if structure.block or structure.seq_q != x.shape[0] or structure.seq_k != x.shape[0]:
        kind = f"BSR of {structure.block}" if structure.block else f"{structure.seq_q} × {structure.seq_k}"
        raise ValueError(f"gat takes a CSR structure of {x.shape[0]} × {x.shape[0]} nodes, not {kind}")
    lists = (structure.row_offsets, structure.columns, structure.order)
    return kernels.call(NAME, x, left, right, *lists, float(negative_slope), impl=impl)


def _fake(x, left, right, row_offsets, columns, order, slope, impl):
    return x.new_empty(x.shape)


register_fakes({"gat": _fake})
