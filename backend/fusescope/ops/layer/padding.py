"""Packing of padding: from padded sequences to packed rows and back, with the prefix sums of the lengths."""

from __future__ import annotations

import random
from functools import lru_cache

from fusescope.core.schema import Parameter, complete, size
from fusescope.kernels import register_fakes
from fusescope.ops.base import Cost, Peer, Tolerance
from fusescope.ops.common.cases import BYTES
from fusescope.ops.common.peers import COMPILES, compiled
from fusescope.ops.common.tensors import generator_for, random_tensor

__all__ = ["offsets", "pack", "padding", "unpack"]

NAME = "padding"
TITLE = "Pack and unpack padding"
SUMMARY = (
    "packed row cu_seqlens[b] + s is x[b, s] for s < lengths[b]; unpacking puts it back, with zeros "
    "in the padding."
)
FAMILY = "padding"
DIRECTIONS = ("pack", "unpack")
PARAMETERS = (
    size("batch", 16, "sequences", 1 << 16, (1, 2, 8, 16, 64)),
    size("seq", 512, "tokens of a padded sequence", 1 << 17, (128, 256, 512, 1024, 2048)),
    size("cols", 768, "elements per token", 1 << 20, (256, 768, 1024, 4096)),
    size(
        "mean",
        60,
        "mean length in per cent of seq; lengths are drawn uniformly",
        100,
        (20, 40, 60, 80, 100),
        sweep=False,
    ),
    Parameter("direction", "choice", "pack", "pack (prefix sums included) or unpack", choices=DIRECTIONS),
)
DTYPES = ("float32", "float16", "bfloat16")
TOLERANCE = {d: Tolerance(0.0, 2.0**-40, "elements are moved, not changed") for d in DTYPES}


def validate(values):
    values = complete(NAME, PARAMETERS, values, text=True)
    if (
        values["batch"] * values["seq"] >= 1 << 31
        or values["batch"] * values["seq"] * values["cols"] > 1 << 33
    ):
        raise ValueError(
            "padding takes fewer than 2^31 tokens of at most 2^33 elements together, not "
            f"{values['batch']} x {values['seq']} tokens of {values['cols']}"
        )
    return values


@lru_cache(maxsize=64)
def _lengths(batch: int, seq: int, mean: int) -> tuple[int, ...]:
    """Of a case: uniform with the given mean, at most seq and at least 1; the same on every machine."""
    low, high = (2 * mean - 100, 100) if mean > 50 else (0, 2 * mean)
    draw = random.Random(f"{batch} {seq} {mean}")
    return tuple(max(1, min(seq, round(seq * draw.uniform(low, high) / 100))) for _ in range(batch))


def inputs(values, dtype, device, seed, contiguous=True):
    import torch

    g = generator_for(device, seed)
    batch, seq, cols = values["batch"], values["seq"], values["cols"]
    lengths = _lengths(batch, seq, values["mean"])
    total, place = sum(lengths), torch.tensor((0, *lengths), dtype=torch.int32)
    shape = (batch, seq, cols) if values["direction"] == "pack" else (total, cols)
    return {
        "x": random_tensor(shape, dtype, device, g, contiguous),
        "lengths": place[1:].to(device),
        "cu_seqlens": place.cumsum(0, dtype=torch.int32).to(device),
        "seq": seq,
        "total": total,
        "direction": values["direction"],
    }


def arguments(inputs):
    return tuple(inputs[name] for name in ("x", "lengths", "cu_seqlens", "seq", "total", "direction")), {}


def call(inputs, impl):
    return padding(*arguments(inputs)[0], impl=impl)


def reference(inputs):
    return _masked(inputs["x"].double(), *arguments(inputs)[0][1:])


def cost(values, dtype):
    batch, seq, cols = values["batch"], values["seq"], values["cols"]
    packed, padded = (
        float(n * cols * BYTES[dtype]) for n in (sum(_lengths(batch, seq, values["mean"])), batch * seq)
    )
    return Cost(0.0, 0.0, packed, packed if values["direction"] == "pack" else padded)


def _masked(x, lengths, cu_seqlens, seq, total, direction):
    import torch

    keep = torch.arange(seq, device=x.device) < lengths[:, None]
    if direction == "pack":
        return x[keep]
    out = x.new_zeros((lengths.shape[0], seq, x.shape[-1]))
    out[keep] = x
    return out


def _gathered(x, lengths, cu_seqlens, seq, total, direction):
    import torch

    if direction == "pack":
        rows = torch.arange(total, device=x.device, dtype=torch.int32)
        b = torch.searchsorted(cu_seqlens[1:], rows, right=True)
        return x.flatten(0, 1).index_select(0, b * seq + rows - cu_seqlens[b])
    s = torch.arange(seq, device=x.device)
    rows = (cu_seqlens[:-1, None] + s).clamp(max=total - 1)
    return torch.where((s < lengths[:, None])[..., None], x[rows], 0.0)


PEERS = {
    "eager": Peer(
        lambda i: lambda: _masked(*arguments(i)[0]), "a boolean mask as index (it synchronises on CUDA)"
    ),
    "gather": Peer(
        lambda i: lambda: _gathered(*arguments(i)[0]), "searchsorted and index_select; a gather and where"
    ),
    "compile": Peer(
        lambda i: compiled(_gathered, *arguments(i)[0]), "torch.compile of gather", compiles=COMPILES
    ),
}


def padding(x, lengths, cu_seqlens, seq, total, direction, *, impl="auto"):
    """``pack(x, lengths, total)[0]`` (prefix sums included) or ``unpack(x, cu_seqlens, batch, seq)``: the
    operator as it is measured. direction: "pack" or "unpack"."""
    if direction == "pack":
        return pack(x, lengths, total, impl=impl)[0]
    if direction == "unpack":
        return unpack(x, cu_seqlens, lengths.shape[0], seq, impl=impl)
    raise ValueError(f"direction is {' or '.join(DIRECTIONS)}, not {direction!r}")


def offsets(lengths, seq, total=None, *, impl="auto"):
    """(cu_seqlens, indices) of sequences of the given lengths padded to ``seq``.

    lengths: int32 or int64 (B,), B at least 1, on the CPU or a CUDA device. cu_seqlens: int32 (B + 1,), their
    prefix sums from 0. indices: int64 (total,): of packed row r the padded row b * seq + s it comes from.
    total: how many packed rows there are, at least the sum of the lengths; those beyond the sum have index
    -1. Where total is None the sum is read back, which synchronises; otherwise nothing does, and it can be
    captured in a CUDA graph. Raises TypeError and ValueError for operands that do not fit; on the CPU also
    for lengths outside [0, seq] and a sum above total. On CUDA the values are not looked at: lengths count as
    clamped, rows beyond total are left out.
    """
    import torch

    from fusescope import kernels

    _check_lengths(lengths, seq)
    if total is not None and (
        isinstance(total, bool) or not isinstance(total, int | torch.SymInt) or total < 0
    ):
        raise ValueError(f"total is a whole number from 0, not {total!r}")
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high, real = int(lengths.min()), int(lengths.max()), int(lengths.sum())
        if low < 0 or high > seq:
            raise ValueError(f"lengths lie between 0 and seq, {seq}; not {low if low < 0 else high}")
        if total is not None and real > total:
            raise ValueError(f"total is at least the sum of the lengths, {real}; not {total}")
    total = int(lengths.clamp(0, seq).sum()) if total is None else total
    return kernels.call("padding_offsets", lengths, seq, total, impl=impl)


def pack(x, lengths, total=None, *, impl="auto"):
    """(packed, cu_seqlens, indices): the rows of x that are no padding, one sequence after the other.

    x: (B, S, W) of any dtype and strides; packed: (total, W), with zeros beyond the sum of the lengths.
    lengths, total and what is returned besides: see ``offsets``. Raises TypeError and ValueError for operands
    that do not fit.
    """
    from fusescope import kernels

    _check_tensor("pack", "x (batch, seq, width)", x, 3)
    _check_lengths(lengths, x.shape[1])
    if lengths.shape[0] != x.shape[0] or lengths.device != x.device:
        raise ValueError(
            f"pack takes a length for each of {x.shape[0]} sequences, on {x.device}; not "
            f"{lengths.shape[0]} on {lengths.device}"
        )
    cu_seqlens, indices = offsets(lengths, x.shape[1], total, impl=impl)
    return kernels.call("padding_pack", x, indices, impl=impl), cu_seqlens, indices


def unpack(packed, cu_seqlens, batch, seq, *, impl="auto"):
    """(batch, seq, W) of packed rows (total, W), zeros in the padding; any dtype and strides.

    cu_seqlens: int32 (batch + 1,), as ``offsets`` gives it; sequences of more than seq rows are cut at seq.
    Raises TypeError and ValueError for operands that do not fit.
    """
    import torch

    from fusescope import kernels

    _check_tensor("unpack", "packed (total, width)", packed, 2)
    if (
        not isinstance(cu_seqlens, torch.Tensor)
        or cu_seqlens.dtype != torch.int32
        or cu_seqlens.device != packed.device
    ):
        raise TypeError(f"cu_seqlens is an int32 tensor on {packed.device}, as offsets and pack give it")
    if batch < 0 or seq < 0 or tuple(cu_seqlens.shape) != (batch + 1,):
        raise ValueError(f"cu_seqlens has batch + 1 = {batch + 1} elements, not {tuple(cu_seqlens.shape)}")
    return kernels.call("padding_unpack", packed, cu_seqlens.contiguous(), batch, seq, impl=impl)


def _check_tensor(function: str, what: str, t, dims: int) -> None:
    import torch

    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{function} takes {what}, not {type(t).__name__}")
    if t.dim() != dims:
        raise ValueError(f"{function} takes {what}, not {tuple(t.shape)}")


def _check_lengths(lengths, seq) -> None:
    import torch

    if not isinstance(lengths, torch.Tensor) or lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"lengths is an int32 or int64 tensor, not {getattr(lengths, 'dtype', type(lengths).__name__)}"
        )
    if lengths.dim() != 1 or lengths.shape[0] < 1:
        raise ValueError(
            f"lengths is a vector with one length for each sequence, at least one; not {tuple(lengths.shape)}"
        )
    if seq < 1:
        raise ValueError(f"seq is at least 1, not {seq}")


def _fake_offsets(lengths, seq, total, impl):
    import torch

    return lengths.new_empty((lengths.shape[0] + 1,), dtype=torch.int32), lengths.new_empty(
        (total,), dtype=torch.int64
    )


def _fake_pack(x, indices, impl):
    return x.new_empty((indices.shape[0], x.shape[2]))


def _fake_unpack(packed, cu_seqlens, batch, seq, impl):
    return packed.new_empty((batch, seq, packed.shape[1]))


register_fakes({"padding_offsets": _fake_offsets, "padding_pack": _fake_pack, "padding_unpack": _fake_unpack})
