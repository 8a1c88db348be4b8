"""The float64 reference of a whole model: what there is to compare, in order and with sizes, and the tensors
themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fusescope.models.accuracy import exact, hooks, select
from fusescope.models.run import build


def places(reference, inputs, inside: bool) -> dict[str, tuple[int, str]]:
    """{name: (bytes in float64, level)} of all that can be compared, in order of execution."""
    sizes: dict[str, tuple[int, str]] = {}
    of = {id(m): n for n, m in reference.named_modules()}

    def module(name, m, _args, _kwargs, output):
        leaf = not any(True for _ in m.children()) and (any(True for _ in m.parameters()) or is_activation(m))
        sizes[name] = (output.numel() * 8, "kernel" if leaf else "module")

    def visit(call, m, query, key, value, mask, keywords):
        found = exact.attention(m, query, key, value, mask, keywords)
        if found is None:
            return call(query, key, value)
        if inside:
            for n, tensor in ({"query": query, "key": key, "value": value} | found).items():
                sizes[f"{of[id(m)]}:{n}"] = (tensor.numel() * 8, "kernel" if n == "context" else "inside")
        return found["context"], found["probabilities"]

    calls = hooks.attention_calls(visit)
    with torch.inference_mode(), exact.float64_stays(), hooks.module_outputs(reference, module), calls:
        build.call(reference, inputs)
    return sizes


def groups(sizes: Mapping[str, tuple[int, str]], budget: int) -> list[set[str]]:
    """The names in as few sets as fit the budget (bytes); a tensor larger than it stands alone."""
    groups: list[set[str]] = [set()]
    used = 0
    for name, (size, _) in sizes.items():
        if groups[-1] and used + size > budget:
            groups.append(set())
            used = 0
        groups[-1].add(name)
        used += size
    return groups


def tensors(reference, inputs, names: set[str], lengths):
    """({name: the reference's tensor, chosen to the valid tokens}, its output)."""
    kept: dict[str, Any] = {}

    def module(name, _module, _args, _kwargs, output):
        kept[name] = select.valid(output, lengths)

    calls = hooks.attention_calls(_calls(reference, names, kept, lengths))
    with torch.inference_mode(), exact.float64_stays(), hooks.module_outputs(reference, module, names), calls:
        return kept, build.call(reference, inputs)


def _calls(reference, names, kept, lengths):
    """Attention of the reference: exact, its intermediates kept."""
    of = {id(m): n for n, m in reference.named_modules()}

    def visit(call, module, query, key, value, mask, keywords):
        found = exact.attention(module, query, key, value, mask, keywords)
        if found is None:
            return call(query, key, value)
        for n, tensor in ({"query": query, "key": key, "value": value} | found).items():
            if f"{of[id(module)]}:{n}" in names:
                kept[f"{of[id(module)]}:{n}"] = select.valid(tensor, lengths, select.layout(n))
        return found["context"], found["probabilities"]

    return visit


def is_activation(module) -> bool:
    """A module of arithmetic without weights: GELU and the like."""
    return not any(True for _ in module.children()) and "act" in type(module).__module__
