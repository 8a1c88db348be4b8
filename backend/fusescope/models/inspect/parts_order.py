"""Where the time of a compiled mode goes, by layer part: its modules are gone, but the order of its products
and attentions is the model's.

What is between two of them belongs to the part that the place says: behind a layer's output product its
residual and norm, between the products of the FFN the activation. The first norm of a model that norms
beforehand is counted with the embedding, with which it is fused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models.inspect import backends

_KERNEL_PRODUCT = re.compile(
    r"^triton_tem_\w*mm|^(?!triton_)(?!.*(fprop|conv)).*(gemm|gemv|nvjet|xmma|cutlass|dot_kernel)",
    re.IGNORECASE,
)
"""Triton's templates of products (its other kernels only name what they fuse), and the libraries' but for
convolutions."""
_KERNEL_REST = re.compile(r"split_?k_?reduce|gemv_?reduce|reduce_?split", re.IGNORECASE)
"""Kernels that finish the product before them."""
_OPERATOR_PRODUCT = re.compile(
    r"^(aten::(mm|addmm|bmm|baddbmm|linear)(_out)?|mkldnn::_linear_pointwise\w*|mkl::_mkl_linear)$"
)
_CALL = "fusescope: one call"

Step = tuple[str, float]
"""("product" | "attention" | "rest", ms), in order; "rest" finishes what came before it. Everything else is
"other"."""


def measure(run: Callable[[], Any], device: str, head: bool) -> dict[str, float]:
    """ms by layer part of one profiled call; head: a product follows the last layer. Unsupported where its
    steps are not those of layers."""
    return divide(list(_steps(run, device)), head)


def divide(steps: Iterable[Step], head: bool) -> dict[str, float]:
    """ms by layer part. The steps of a layer: products of query, key and value (as many as there are before
    the first attention), attention, the output product, two or three of the FFN."""
    steps = list(steps)
    blocks = _blocks([kind for kind, _ in steps])
    if len(blocks) < 2:
        raise Unsupported("it has no layer parts: no fused attention is seen among its kernels")
    first, tail = blocks[0], blocks[-1] - head
    between = {n - first for n in blocks[1:-1]} | {tail}
    if len(between) > 1 or not 3 <= tail <= 4 or not first:
        raise Unsupported(
            f"it has no layer parts: the products around its attentions are {blocks}, not those of equal "
            "layers"
        )
    layer = ["output", *["ffn"] * (tail - 1)]
    found: dict[str, float] = {}
    place, behind, todo, attentions = "embedding", "embedding", ["qkv"] * first, 0
    for kind, ms in steps:
        if kind == "attention":
            if place != "attention":
                attentions += 1
                todo = [*layer, *(["qkv"] * first if attentions < len(blocks) - 1 else ["head"] * head)]
            place = behind = "attention"
        elif kind == "product":
            place = todo.pop(0)
            behind = "norm" if place == "output" or (place == "ffn" and todo[:1] != ["ffn"]) else place
        at = place if kind != "other" else behind
        found[at] = found.get(at, 0.0) + ms
    return found


def _blocks(kinds: list[str]) -> list[int]:
    """How many products there are before, between and behind the attentions; attentions without a product
    between them are one."""
    counts, inside = [0], False
    for kind in kinds:
        if kind == "attention" and not inside:
            counts.append(0)
            inside = True
        elif kind == "product":
            counts[-1] += 1
            inside = False
    return counts


def _steps(run: Callable[[], Any], device: str) -> Iterable[Step]:
    def call() -> None:
        with torch.profiler.record_function(_CALL):
            run()

    cuda = device.startswith("cuda")
    kind = torch.autograd.DeviceType.CUDA if cuda else torch.autograd.DeviceType.CPU
    found = [
        e for e in backends.profiled(call, device) if not (cuda and e.is_user_annotation)
    ]  # spans over kernels
    events = [
        (e.name, e.time_range.start / 1e3, e.time_range.end / 1e3) for e in found if e.device_type == kind
    ]
    return kernels(events) if cuda else operators(events)


def kernels(events: list[tuple[str, float, float]]) -> Iterable[Step]:
    """Steps of a GPU's kernels, (name, start, end) in ms. The gaps between them belong to none."""
    for name, start, end in sorted(events, key=lambda e: e[1]):
        kinds = (
            ("attention", _fused(name)),
            ("rest", _KERNEL_REST.search(name)),
            ("product", _KERNEL_PRODUCT.search(name)),
        )
        yield next((kind for kind, is_so in kinds if is_so), "other"), end - start


def operators(events: list[tuple[str, float, float]]) -> Iterable[Step]:
    """Steps of a call on the CPU: products and attention as the profiler saw them, the compiled loops between
    as what is left."""
    calls = [e for e in events if "CompiledFxGraph" in e[0]] or [
        e for e in events if e[0] == _CALL
    ]  # without the guards before it
    begin, end = calls[0][1:]
    last = begin
    for name, start, stop in sorted(events, key=lambda e: (e[1], -e[2])):
        kind = (
            "product"
            if _OPERATOR_PRODUCT.match(name)
            else "attention"
            if _fused(name, operator=True)
            else None
        )
        if kind is None or not last <= start <= end:  # also what is inside an operator that was taken
            continue
        yield "other", start - last
        yield kind, stop - start
        last = stop
    yield "other", end - last


def _fused(name: str, operator: bool = False) -> bool:
    """Whether it is one of the fused attentions."""
    found = backends.named(*((set(), {name}) if operator else ({name}, set())))
    return found is not None and found.endswith("attention")
