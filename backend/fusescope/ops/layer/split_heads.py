"""The QKV product's bias and its split into heads, bound by memory."""

from __future__ import annotations

from fusescope.core.schema import complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Tolerance
from fusescope.ops.common.cases import BYTES, UNIT_ROUNDOFF, check_tensors
from fusescope.ops.common.peers import torch_peers
from fusescope.ops.common.tensors import generator_for, in_one, random_tensor

NAME = "split_heads"
TITLE = "QKV bias + head split"
SUMMARY = (
    "q, k, v (batch, heads, seq, head_dim) of qkv (batch, seq, (heads + 2 kv_heads) head_dim) + "
    "bias, each dense."
)
FAMILY = "split_heads"
PARAMETERS = (
    size("batch", 8, "sequences", 1 << 16, (1, 2, 4, 8, 16)),
    size("seq", 512, "tokens per sequence", 1 << 17, (128, 256, 512, 1024, 2048)),
    size("heads", 12, "heads of q", 1 << 12, (1, 8, 12, 16, 32)),
    size(
        "kv_heads",
        None,
        "heads of k and v; as many as of q where left out",
        1 << 12,
        (1, 2, 4, 12),
        sweep=False,
    ),
    size("head_dim", 64, "head size", 1 << 12, (32, 64, 80, 128)),
)
DTYPES = ("float32", "float16", "bfloat16")


def tolerance(values, dtype):
    return Tolerance(0.0, 1.001 * UNIT_ROUNDOFF[dtype], f"one sum, rounded once to {dtype}")


TOLERANCE = {d: tolerance({}, d) for d in DTYPES}


def validate(values):
    values = complete(NAME, PARAMETERS, values, text=True)
    return values | {"kv_heads": values["kv_heads"] or values["heads"]}


def inputs(values, dtype, device, seed, contiguous=True):
    g = generator_for(device, seed)
    width = (values["heads"] + 2 * values["kv_heads"]) * values["head_dim"]
    qkv = random_tensor((values["batch"], values["seq"], width), dtype, device, g, contiguous)
    bias = random_tensor((width,), dtype, device, g, contiguous)
    return {"qkv": qkv, "bias": bias, "heads": values["heads"], "kv_heads": values["kv_heads"]}


def arguments(inputs):
    return (inputs["qkv"], inputs["bias"], inputs["heads"], inputs["kv_heads"]), {}


def call(inputs, impl):
    return split_heads(*arguments(inputs)[0], impl=impl)


def joined(result):
    return in_one(result, 3)


def reference(inputs):
    return joined(
        _separate(inputs["qkv"].double(), inputs["bias"].double(), inputs["heads"], inputs["kv_heads"])
    )


def cost(values, dtype):
    width = (values["heads"] + 2 * values["kv_heads"]) * values["head_dim"]
    n = values["batch"] * values["seq"] * width
    return Cost(float(n), float(n), (n + width) * BYTES[dtype], n * BYTES[dtype])


def _separate(qkv, bias, heads, kv_heads):
    batch, seq, _ = qkv.shape
    split = (qkv + bias).view(batch, seq, heads + 2 * kv_heads, -1).transpose(1, 2)
    return tuple(t.contiguous() for t in split.split((heads, kv_heads, kv_heads), 1))


PEERS = torch_peers(_separate, arguments, "an addition and three copies of transposed views")


def split_heads(qkv, bias, heads, kv_heads=None, *, impl="auto"):
    """(q, k, v) of a QKV product, bias added: dense views of one buffer, in qkv's dtype.

    qkv: (B, S, (heads + 2 kv_heads) D) → (B, heads, S, D) and twice (B, kv_heads, S, D); or packed (total,
    (heads + 2 kv_heads) D) → (total, heads, D) and twice (total, kv_heads, D). bias: as many elements as a
    row of qkv, or None. kv_heads: as heads where None. float32, float16 or bfloat16, on the CPU or a CUDA
    device. impl: a kernel of cuda/split_heads, or "auto" for the last of the ladder. Raises TypeError and
    ValueError for operands that do not fit.
    """
    from fusescope import kernels

    check_tensors(NAME, DTYPES, qkv=qkv, **({} if bias is None else {"bias": bias}))
    if qkv.dim() not in (2, 3):
        raise ValueError(
            f"split_heads takes qkv as (batch, seq, width) or packed (total, width), not {tuple(qkv.shape)}"
        )
    kv_heads = heads if kv_heads is None else kv_heads
    width = qkv.shape[-1]
    if heads < 1 or kv_heads < 1 or width % (heads + 2 * kv_heads):
        raise ValueError(
            "split_heads takes rows that heads + 2 kv_heads divide, at least one of each; not "
            f"{width} elements in {heads} heads "
            f"and {kv_heads} of k and v"
        )
    if bias is not None and bias.shape != (width,):
        raise ValueError(
            f"split_heads takes bias of shape ({width},), one element for each of a row; not "
            f"{tuple(bias.shape)}"
        )
    flat = kernels.call(NAME, qkv, bias, heads, kv_heads, impl=impl)
    depth = width // (heads + 2 * kv_heads)
    rows = qkv.numel() // width if width else 0
    sizes = [rows * count * depth for count in (heads, kv_heads, kv_heads)]
    shape = (
        (lambda n: (qkv.shape[0], n, qkv.shape[1], depth))
        if qkv.dim() == 3
        else (lambda n: (qkv.shape[0], n, depth))
    )
    parts = flat.split(sizes)
    return parts[0].view(shape(heads)), parts[1].view(shape(kv_heads)), parts[2].view(shape(kv_heads))


def _fake(qkv, bias, heads, kv_heads, impl):
    return qkv.new_empty((qkv.numel(),))


register_fakes({NAME: _fake})
