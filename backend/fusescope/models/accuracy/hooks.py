"""Looking into a Hugging Face model while it runs: the output of every module, and every call of its
attention function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

INSIDE = ("query", "key", "value", "scores", "probabilities", "context")
"""Named intermediates of an attention call: its inputs (B, H, S, D), scaled scores and probabilities (B, H,
S_q, S_k), and the weighted values (B, S_q, H, D)."""


@contextlib.contextmanager
def module_outputs(model, visit: Callable[[str, Any, tuple, dict, Any], None], names=None) -> Iterator[None]:
    """Call ``visit(name, module, args, kwargs, output)`` after every call of a module (of ``names``); output
    is its first tensor.

    The n-th call of the same module in one forward has "#n" at its name, from the second on. Dropout, which
    does nothing in inference, is passed over.
    """
    calls: dict[str, int] = {}

    def hook(name):
        def after(module, args, kwargs, output):
            calls[name] = calls.get(name, 0) + 1
            full = name if calls[name] == 1 else f"{name}#{calls[name]}"
            tensor = first_tensor(output)
            if tensor is not None and (names is None or full in names):
                visit(full, module, args, kwargs, tensor)

        return after

    handles = [
        m.register_forward_hook(hook(name), with_kwargs=True)
        for name, m in model.named_modules()
        if name and "Dropout" not in type(m).__name__
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def attention_calls(visit: Callable[..., Any]) -> Iterator[None]:
    """Let ``visit(call, module, query, key, value, mask, keywords) -> result`` stand for every attention
    function.

    ``call(query, key, value)`` is the function that the model chose, with the call's mask and keywords. Holds
    for every model of Hugging Face's that asks the AttentionInterface, in this process, while inside.
    """
    from transformers.modeling_utils import AttentionInterface

    chosen = AttentionInterface.get_interface

    def get_interface(self, name, default):
        function = chosen(self, name, default)

        def watched(module, query, key, value, attention_mask=None, **keywords):
            def call(q, k, v):
                return function(module, q, k, v, attention_mask, **keywords)

            return visit(call, module, query, key, value, attention_mask, keywords)

        return watched

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        AttentionInterface.get_interface = chosen


def first_tensor(output):
    """The first floating-point tensor of a module's output (a tensor, a tuple, a ModelOutput); None where
    there is none."""
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() else None
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, list | tuple):
        return next((t for t in map(first_tensor, output) if t is not None), None)
    return None


def probabilities(call, query, key, value):
    """(B, H, S_q, S_k) as an attention function weighs its values, found from outside: values that are
    columns of the identity come out as the columns of the probabilities, rounded as the function rounds its
    results."""
    b, kv_heads, s_k, d = value.shape
    columns = []
    for first in range(0, s_k, d):
        unit = torch.zeros(b, kv_heads, s_k, d, dtype=value.dtype, device=value.device)
        there = torch.arange(first, min(first + d, s_k), device=value.device)
        unit[:, :, there, there - first] = 1
        out = call(query, key, unit)
        columns.append((out[0] if isinstance(out, tuple) else out).transpose(1, 2)[..., : len(there)])
    return torch.cat(columns, -1)
