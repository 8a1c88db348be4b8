"""Which attention ran: read from what the profiler saw of one call, never taken from the request."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

_FLASH_4 = r"flash_attn_?cute|FlashAttentionForwardSm"
_KERNELS = (
    (
        r"\b(attention|varlen|decode)_(rowwise|scored|blockwise|hopper|scheduled|items|warp_keys|tensor_core|cluster)\w*",
        "fusescope",
    ),
    (r"flex_attention", "flex_attention"),
    (_FLASH_4, "flash_attention_4"),
    (rf"^(?!.*(?:{_FLASH_4})).*(flash_fwd|pytorch_flash|flash_attn)", "flash_attention"),
    (r"fmha_cutlass|cutlassF|mem_eff", "efficient_attention"),
    (r"cudnn.*(sdpa|flash|fmha)", "cudnn_attention"),
)
_OPERATORS = (
    (r"^fusescope::(attention\w*)", "fusescope"),
    (r"flex_attention", "flex_attention"),
    (r"^aten::_(scaled_dot_product_flash_attention\w*|flash_attention_forward)", "flash_attention"),
    (r"^aten::_scaled_dot_product_efficient_attention", "efficient_attention"),
    (r"^aten::_scaled_dot_product_cudnn_attention", "cudnn_attention"),
    (r"^aten::_scaled_dot_product_attention_math", "math"),
)
_SOFTMAX = re.compile(r"softmax", re.IGNORECASE)


def ran(run: Callable[[], Any], device: str) -> str | None:
    """The attention of one call of ``run``: "fusescope attention_hopper", "flash_attention", "math" …,
    several joined by " and "; "matmul, softmax, matmul" where only a softmax was seen; "inductor" where all
    that is seen is compiled code (FlexAttention on the CPU), None where nothing is that is known."""
    events = profiled(run, device)
    operators = {e.name for e in events if e.device_type == torch.autograd.DeviceType.CPU}
    kernels = {e.name for e in events if e.device_type == torch.autograd.DeviceType.CUDA}
    return named(kernels, operators)


def profiled(run: Callable[[], Any], device: str) -> list:
    """torch.profiler's events of one warm call, with the kernels on CUDA."""
    cuda = device.startswith("cuda")
    activities = [torch.profiler.ProfilerActivity.CPU] + (
        [torch.profiler.ProfilerActivity.CUDA] if cuda else []
    )
    run()
    if cuda:
        torch.cuda.synchronize(device)
    with torch.profiler.profile(activities=activities) as profile:
        run()
        if cuda:
            torch.cuda.synchronize(device)
    return profile.events()


def named(kernels: set[str], operators: set[str]) -> str | None:
    """From names of kernels (none on the CPU) and operators. A fused operator's own softmax is inside its
    kernel, so a softmax next to one is said as the math path only where no fused kernel was seen."""
    found = _matches(_KERNELS, kernels) or _matches(
        _OPERATORS, operators - {"aten::scaled_dot_product_attention"}
    )
    if found:
        return " and ".join(found)
    if any(_SOFTMAX.search(name) for name in (kernels or operators)):
        by_torch = any(name.startswith("aten::scaled_dot_product_attention") for name in operators)
        return "math" if by_torch else "matmul, softmax, matmul"
    return "inductor" if any("CompiledFxGraph" in name for name in operators) else None


def _matches(table, names: set[str]) -> list[str]:
    found = []
    for pattern, word in table:
        hits = sorted({m.group(0).removeprefix("fusescope::") for n in names if (m := re.search(pattern, n))})
        if hits:
            found.append(f"{word} {', '.join(hits)}" if word == "fusescope" else word)
    return found
