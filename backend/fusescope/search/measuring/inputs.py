"""What a layer is run on: random inputs, the prepared mask, the answer in float64, and the error allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusescope import masks
from fusescope.ops.base import Tolerance
from fusescope.search.scheme import unfused
from fusescope.search.scheme.layer import OPERATORS, VALUES, flows
from fusescope.search.scheme.setting import Setting

_CHUNK_BYTES = (
    1 << 30
)  # of float64 scores at a time: the reference goes over the batch in pieces of at most this
_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def make(setting: Setting, seed: int) -> dict[str, Any]:
    """Inputs of a layer by name, drawn by the seed: what flows in (layer.VALUES; weights at the scale of a
    trained layer), heads, empty_rows, and plan: the mask prepared for our attention, None without one."""
    import torch

    from fusescope.ops.attention import prepare

    mask = plan = None
    if setting.masked:
        definition = masks.parse(setting.mask)
        dense = definition.dense(setting.seq)
        mask = torch.from_numpy(dense).to(setting.device)
        mask = mask if mask.dim() == 2 else mask[:, None]
        plan = prepare(definition, setting.seq, setting.seq, setting.device)
    return unfused.inputs(setting.sizes(), setting.dtype, setting.device, seed, mask) | {"plan": plan}


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a generated ``layer`` out of ``make``."""
    return {name: values[name] for name in (*flows()[0], "empty_rows", "plan")}


def reference(values: Mapping[str, Any], numbers: Sequence[int] = range(15)) -> dict[str, Any]:
    """What these operators give in float64 on the given values (taken as they are, rounded or not): outputs
    that are needed outside, by name. Sequences are independent, so the batch is done in pieces."""
    import torch

    taken, given = flows(numbers)
    known = {n: values[n] for n in (*taken, "empty_rows") if n in values}
    batch = max(known[n].shape[0] for n in taken if VALUES[n].shape[0] == "batch")
    seq = next(known[n].shape[-2] for n in taken if VALUES[n].shape[0] == "batch")
    step = max(1, _CHUNK_BYTES // (8 * values["heads"] * seq * seq))
    pieces = []
    for start in range(0, batch, step):
        some = {n: _piece(n, t, batch, start, step) for n, t in known.items()}
        done = unfused.run(some | {"heads": values["heads"]}, numbers)
        pieces.append({n: done[n] for n in given})
    return {n: torch.cat([p[n] for p in pieces]) if len(pieces) > 1 else pieces[0][n] for n in given}


def _piece(name: str, tensor, batch: int, start: int, step: int):
    """Sequences start … start + step of a value, in float64."""
    if tensor is None:
        return None
    per_sequence = tensor.dim() == 4 if name in ("mask", "empty_rows") else VALUES[name].shape[0] == "batch"
    if per_sequence and tensor.shape[0] == batch:
        tensor = tensor[start : start + step]
    return tensor if not tensor.dtype.is_floating_point else tensor.double()


def tolerance(setting: Setting, numbers: Sequence[int], ref) -> Tolerance:
    """The error allowed in a value that these operators give, from its reference.

    Each operator may round what it passes on to the dtype, u of its size, and the layer's values keep their
    scale (weights ~ 1/sqrt(in), then LayerNorm): n roundings make sqrt(n) u of the root mean square; the
    largest of millions of elements is some five deviations out, and a score's rounding enters a probability
    through exp, times a score of up to six. 16 u covers their product; a single forgotten bias (0.1 of the
    scale, 0.4 at its largest) is beyond it in every dtype. On top fp32 sums over k terms: sqrt(k) u(float32),
    four deviations.
    """
    u, terms = _ROUNDOFF[setting.dtype], 1
    sizes = setting.sizes()
    for o in (OPERATORS[i] for i in numbers):
        if o.unit == "matrix":
            terms = max(terms, {3: sizes.head_dim, 6: sizes.seq, 13: sizes.ffn}.get(o.number, sizes.hidden))
    scale = float(ref.square().mean().sqrt()) if ref.numel() else 0.0
    return Tolerance(
        (16 * u + 4 * terms**0.5 * _ROUNDOFF["float32"]) * scale,
        16 * u,
        f"{len(numbers)} operators rounded to {setting.dtype}, fp32 sums of up to {terms} terms",
    )
