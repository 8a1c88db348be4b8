"""Decoder layers beyond what inputs() draws: sequences of different lengths, places outside the cache, keys
that are not there, and whether each key is seen exactly once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product

import torch

from fusescope import ops
from fusescope.measure.checking.check import compare
from fusescope.measure.checking.inputs import same
from fusescope.measure.checking.poison import poisoned
from fusescope.ops.common import rope
from fusescope.ops.decoder.describe import room
from fusescope.ops.decoder.peers import in_double, separate
from fusescope.ops.layer.decoder_layers import DecoderLayer, decoder_layers


def places_of(values: dict) -> list[int]:
    """Places of the sequences: the last one, the first, outside on both sides, and between."""
    cached, limit = values["cached"], room(values)
    several = (cached, 0, -1, cached // 2, limit, cached, 1 << 40, cached // 3)
    return [several[i % len(several)] for i in range(values["batch"])]


TWISTS = ("erf", "half", "qkv_bias", "eps")
"""What no kind of layer has: GELU with erf, half of a head turned, a bias of QKV alone (as Qwen 2 has it), an
eps that weighs as much as what it is added to."""


def what_is_wrong(
    impl: str, values: dict, dtype: str, device="cpu", seed=0, contiguous=True, twist=""
) -> str | None:
    """The first thing that is wrong with a call on sequences of different lengths, whose caches hold NaN
    behind their keys, and which stand between other data. twist: one of TWISTS."""
    module = ops.load("decoder_layers")
    values = module.validate(values)
    inputs, places = module.inputs(values, dtype, device, seed, contiguous), places_of(values)
    inputs["places"] = torch.tensor(places, device=device)
    if twist == "erf":
        inputs["activation"] = "gelu"
    elif twist == "half":
        inverse = rope.inverse_frequencies(values["head_dim"] // 2, device=device)
        inputs["cos_sin"] = rope.cos_sin(inputs["places"] % 1000, inverse)
    elif twist == "qkv_bias":
        inputs["qkv_bias"] = inputs["qkv"][..., 0] * 2
    elif twist == "eps":
        inputs["eps"] = 0.5
    inside = [b for b, place in enumerate(places) if 0 <= place < room(values)]
    right = _expected(module, inputs, inside)
    around = {}
    for name in module.WRITES:
        kept = inputs[name]
        around[name] = torch.cat((kept[:1], kept, kept[:1]))
        if not contiguous:
            around[name] = around[name].transpose(2, 3).contiguous().transpose(2, 3)
        inputs[name] = around[name][1:-1]
        for b in inside:
            inputs[name][:, b, :, places[b] + 1 :] = math.nan
    before = {name: t.clone() for name, t in around.items()}
    with poisoned(device, inputs["x"].numel() * inputs["x"].element_size()):
        found, *_ = module.call(inputs, impl)
    allowed = ops.tolerance("decoder_layers", values, dtype)
    for b in set(range(values["batch"])) - set(inside):
        if not found[b].isnan().all():
            return f"row {b}, whose place {places[b]} is outside, is not NaN"
    results = [found[inside]]
    for name in module.WRITES:
        results.append(torch.stack([inputs[name][:, b, :, places[b]] for b in inside], 1))
        for b in inside:
            before[name][1:-1, b, :, places[b]] = inputs[name][:, b, :, places[b]]
        if not same(before[name], around[name]):
            return f"{name} changed beyond the places of the new tokens"
    for what, result, reference in zip(("the result", *module.WRITES), results, right):
        if reason := compare(result, reference, allowed).reason:
            return f"{what}: {reason}"
    return None


def _expected(module, inputs, inside: list[int]):
    """The result and the written keys and values of the sequences whose place is there, in float64."""
    of_them = {"x": inputs["x"][inside], "places": inputs["places"][inside]}
    of_them |= {name: inputs[name][:, inside] for name in module.WRITES}
    if inputs["cos_sin"] is not None:
        of_them["cos_sin"] = inputs["cos_sin"][inside]
    given, how = module.arguments(inputs | of_them)
    out, *sides = separate(*given, **how, wide=in_double)
    row = torch.arange(len(inside), device=out.device)
    return out, *(torch.stack([t[row, :, of_them["places"]] for t in side]) for side in sides)


def does_not_see_each_key_once(
    impl: str, dtype: str, cached: int, heads=4, kv_heads=2, dim=64, layers=2, device="cpu"
) -> str | None:
    """Queries of zeros weigh all keys alike; the value of key j is their number at element j of the head, so
    that the sum counts the keys of each element, exactly. What each layer adds is one of those."""
    width, group = heads * dim, heads // kv_heads
    kind = {"dtype": getattr(torch, dtype), "device": device}
    places = torch.tensor([cached, cached // 2], device=device)
    zeros, ones = torch.zeros(64, width, **kind), torch.ones(width, **kind)
    layer = DecoderLayer(
        norm1=ones,
        qkv=torch.zeros((heads + 2 * kv_heads) * dim, width, **kind),
        output=torch.eye(width, **kind),
        norm2=ones,
        first=torch.cat((zeros, zeros)),
        second=zeros.t().contiguous(),
    )
    limit = cached + 5
    generator = torch.Generator().manual_seed(cached)
    caches = [torch.randn(layers, 2, kv_heads, limit, dim, generator=generator).to(**kind) for _ in "kv"]
    right, values = torch.zeros(2, width, dtype=torch.float64), torch.zeros(2, kv_heads, limit, dim)
    for b, place in enumerate(places.tolist()):
        keys = torch.arange(place)  # the new token's value is zero
        values[b, :, keys, keys % dim] = place + 1.0
        counts = torch.bincount(keys % dim, minlength=dim).double()
        right[b] = layers * counts.repeat(kv_heads * group)
    caches[1].copy_(values)
    found, *_ = decoder_layers(
        torch.zeros(2, width, **kind),
        [layer] * layers,
        *(t.unbind() for t in caches),
        None,
        places,
        heads=heads,
        kv_heads=kv_heads,
        activation="swiglu",
        eps=1e-5,
        impl=impl,
    )
    off = float((found.double().cpu() - right).abs().max())
    largest = float(right.max())
    allowed = 0.1 + 4 * torch.finfo(kind["dtype"]).eps * largest  # a key that is missing is off by one
    return f"a key is missing or counted twice: off by {off:.3g}" if not off < min(allowed, 0.9) else None


_WIDTH, _DIM, _HEADS, _FFN = 256, 64, 2, 64  # of every_weight_is_wrong


def every_weight_is_wrong(
    impl: str, dtype: str, device: str = "cpu", batch=1, columns: Iterable[int] = range(16)
) -> str | None:
    """What is wrong with the 256 numbers of either format, as weights of an input that is 1; None: nothing.
    One column at a time, so that each place of a 16-byte load has had each of them; the number of an output
    has a scale of its own."""
    for kind, name, column in product(
        (torch.int8, torch.float8_e4m3fn), ("qkv", "output", "second"), columns
    ):
        both = _weighed(impl, kind, name, column, batch, dtype, device)
        found, right = (t.float().cpu() for t in both)
        same = (found == right) | (found.isnan() & right.isnan())
        if not bool(same.all()):
            row, n = (~same).nonzero()[0].tolist()
            what = f"{kind} {n} in column {column} of {name}, sequence {row},"
            return f"{what} is {float(found[row, n])}, not {float(right[n])}"
    return None


def _weighed(impl, kind, name, column, batch, dtype, device):
    """(found (batch, 256), right (256,)): what the numbers of a column of a matrix give, of sequences with
    one at that column alone. Keys and values are those of qkv, else the result shows the number."""
    numbers, one = torch.arange(256, dtype=torch.uint8), torch.ones(1).to(kind).view(torch.uint8)
    scales = 2.0 ** (torch.arange(256) % 5 - 2)
    heads = _HEADS * _DIM
    shapes = {"qkv": (3 * heads, _WIDTH), "output": (_WIDTH, heads)}
    shapes |= {"first": (_FFN, _WIDTH), "second": (_WIDTH, _FFN)}
    weights = {n: torch.zeros(shape, dtype=torch.uint8) for n, shape in shapes.items()}
    weights |= {f"{n}_scales": torch.ones(shape[0]) for n, shape in shapes.items()}
    if name == "output":  # of a value that is one; NaN would be in what all of the next product multiplies
        numbers[numbers.view(kind).float().isnan()] = 0
        weights["qkv"][2 * heads + column, column] = one
    elif name == "second":  # of 16, which is its own GELU
        weights["first"][column, column] = one
        weights["first_scales"] *= 16
    weights[name][-256:, column] = numbers
    weights[f"{name}_scales"][-256:] = scales / (16 if name == "second" else 1)
    kept = {"dtype": getattr(torch, dtype), "device": device}
    weights = {n: (t.view(kind) if n in shapes else t).to(device) for n, t in weights.items()}
    norm = torch.full((_WIDTH,), _WIDTH**-0.5, **kept)  # of one 1 among zeros that is 1
    caches = [torch.zeros(batch, _HEADS, 2, _DIM, **kept) for _ in "kv"]
    x = torch.zeros(batch, _WIDTH, **kept)
    x[:, column] = 1
    places = torch.zeros(batch, dtype=torch.int64, device=device)
    how = {"heads": _HEADS, "kv_heads": _HEADS, "activation": "gelu", "eps": 0.0, "impl": impl}
    layer = DecoderLayer(norm1=norm, norm2=norm, **weights)
    out, *_ = decoder_layers(x, [layer], *([t] for t in caches), None, places, **how)
    right = numbers.view(kind).float() * scales
    if name == "qkv":
        return torch.cat([t[:, :, 0].flatten(1) for t in caches], 1), right
    return out, (x[0].float().cpu() + right).to(kept["dtype"])
