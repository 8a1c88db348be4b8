"""Where the time of a call goes, by layer part: one pass with marks in it, for shares only, never a latency.

On CUDA the marks are events, and a kernel that waits is queued first, so that the launches run ahead and the
gaps between them are not counted; on the CPU they are clock readings. A captured mode is measured by the same
operations launched one by one, a decoding step whose layers are one launch by its operators, a compiled mode
by the order of its kernels (parts_order.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models.describe.family import PARTS
from fusescope.models.describe.modes import MODES, Mode
from fusescope.models.inspect import parts_order
from fusescope.models.run import caching, fused_run, modes
from fusescope.models.run.build import Model

_RULES = (
    (
        "embedding",
        r"(^|\.)(embeddings|wte|wpe|embed_tokens|shared|patch_embeddings|word_embeddings|conv1|conv2|embed_positions|position_embeddings|token_type_embeddings|rotary_emb)(\.|$)",
    ),
    ("norm", r"(LayerNorm|layernorm\w*|layer_norm|ln_\w+|norm)$"),
    ("head", r"(lm_head|pooler)"),
    ("qkv", r"(query|key|value|q_proj|k_proj|v_proj|c_attn|(SelfAttention|EncDecAttention)\.[qkv])$"),
    (
        "output",
        r"(attention\.output\.dense|o_proj|out_proj|attn\.c_proj|(SelfAttention|EncDecAttention)\.o)$",
    ),
    ("attention", r"(attention\.self|attention|attn|self_attn|SelfAttention|EncDecAttention)$"),
    (
        "ffn",
        r"(intermediate|output|mlp|DenseReluDense|fc1|fc2|c_fc|c_proj|gate_proj|up_proj|down_proj|dense|act\w*|wi|wo)($|\.)",
    ),
)


def part_of(name: str) -> str | None:
    """The layer part of a Hugging Face module by its name; None for containers."""
    return next((part for part, pattern in _RULES if re.search(pattern, name)), None)


def module_of(name: str) -> str:
    """Where a module's time goes in a model without a weight table: the module of a layer that it is, or is
    in, "layers.{i}.self_attn", the layers as one; outside them the outermost module."""
    steps = name.split(".")
    if (number := next((n for n, step in enumerate(steps) if step.isdigit()), None)) is None:
        return steps[0]
    return ".".join([*steps[:number], "{i}", *steps[number + 1 : number + 2]])


def measure(
    mode_name: str, model: Model, inputs: Mapping[str, Any], run: Callable[[], Any]
) -> dict[str, dict[str, float]]:
    """{part: {"ms", "share"}} of one pass of the mode; run: one call of it, as made. A model by its
    config.json is divided by its modules. Unsupported where its parts cannot be distinguished."""
    mode, by_module = MODES[mode_name], model.family.SETTINGS is None
    by_order = mode.compile or (mode.name == "sdpa-graph-trap" and not by_module)
    if by_order and inputs["case"].get("phase") == "generate":
        raise Unsupported(f"the layers of prompt and tokens cannot be told apart in {mode.name}: see decode")
    if by_module and mode.compile:
        raise Unsupported(f"compiled, the modules of {model.family.ROOT} cannot be distinguished")
    if by_order:  # the trap's masks, and so its attention, a capture decides
        took = parts_order.measure(run, model.device, head=inputs["case"].get("phase") == "decode")
    else:
        marks = _Marks(model.device)
        look = _fused if mode.attention is None else _hooked
        once = look(mode, model, inputs, marks)
        once()  # warm
        marks.begin()
        once()
        took = marks.end()
    total = sum(took.values())
    if by_module:
        return {part: {"ms": ms, "share": ms / total if total else 0.0} for part, ms in took.items()}
    return {
        part: {"ms": took.get(part, 0.0), "share": took.get(part, 0.0) / total if total else 0.0}
        for part in PARTS
    }


class _Marks:
    """Time between marks goes to the part that the later one names, or to the one on top of the stack."""

    def __init__(self, device: str):
        self.cuda, self.on, self.taken, self.names = device.startswith("cuda"), False, [], []

    def begin(self) -> None:
        self.taken, self.names, self.on = [], [], True
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(200_000_000)  # some 0.1 s, in which the launches of a whole pass are queued
        self.mark(None)

    def mark(self, part: str | None) -> None:
        if not self.on:
            return
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.taken.append(event)
        else:
            self.taken.append(time.perf_counter())
        self.names.append(part)

    def end(self) -> dict[str, float]:
        self.on = False
        found: dict[str, float] = {}
        if self.cuda:
            self.taken[-1].synchronize()
        for before, after, part in zip(self.taken, self.taken[1:], self.names[1:]):
            ms = before.elapsed_time(after) if self.cuda else (after - before) * 1e3
            if part is not None:
                found[part] = found.get(part, 0.0) + ms
        return found


def _fused(mode: Mode, model: Model, inputs, marks: _Marks):
    call = fused_run.operations(model, inputs, mode.quantised)
    return lambda: call(mark=marks.mark)


def _hooked(mode: Mode, model: Model, inputs, marks: _Marks):
    """One pass of the mode's module with a mark at the start and the end of every module."""
    module, by_module = model.fresh(modes.view(mode)), model.family.SETTINGS is None
    call = modes.forward(mode, model, inputs, module)
    open_parts: list[str | None] = [None]
    names = {id(m): f"{name}." for name, m in module.named_modules() if name}
    below = names.get(id(caching.body(module)), "") if model.family.PHASES else ""
    for name, part_module in module.named_modules():
        part = (module_of if by_module else part_of)(name.removeprefix(below)) if name else None

        def before(*_, part=part):
            marks.mark(open_parts[-1])
            open_parts.append(part or open_parts[-1])

        def after(*_):
            marks.mark(open_parts.pop())

        part_module.register_forward_pre_hook(before)
        part_module.register_forward_hook(after)

    def run():
        with torch.no_grad():
            return call()

    return run
