"""The execution modes of a model, with the reason where one is not available. No torch; run/modes.py makes
them."""

from __future__ import annotations

from dataclasses import dataclass

from fusescope.models.by_config import architecture
from fusescope.models.describe import catalog
from fusescope.models.describe.family import FP8_CACHE
from fusescope.ops import installed
from fusescope.ops.base import Implementation


@dataclass(frozen=True)
class Mode:
    """kind: "ours" or "peer"; attention: Hugging Face's attn_implementation, None for our own layers; graph:
    calls replay a CUDA graph of their own; compile: torch.compile's mode, None where it is not used; devices:
    device types it exists on; quantised: "int8" or "fp8" where the weights of the layers are, "fp8-cache"
    where the KV cache is; package: the distribution that it needs besides ours."""

    name: str
    kind: str
    idea: str
    attention: str | None
    graph: bool = False
    compile: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    quantised: str | None = None
    package: str | None = None


FLASH = "flash"
"""Mode.attention of FlashAttention-4."""
_CUDA = ("cuda",)
MODES = {
    m.name: m
    for m in (
        Mode("eager", "peer", "Hugging Face with attention as matmul + softmax + matmul", "eager"),
        Mode(
            "sdpa",
            "peer",
            "Hugging Face with scaled_dot_product_attention, the mask prepared outside the call",
            "sdpa",
        ),
        Mode(
            "flex",
            "peer",
            "Hugging Face with FlexAttention, compiled, BlockMask made outside the call",
            "flex_attention",
        ),
        Mode(
            "flash",
            "peer",
            "Hugging Face with FlashAttention-4: full, causal and sliding windows, caches of any lengths",
            FLASH,
            devices=_CUDA,
            package="flash-attn-4",
        ),
        Mode(
            "flash-graph",
            "peer",
            "flash captured in a CUDA graph",
            FLASH,
            True,
            devices=_CUDA,
            package="flash-attn-4",
        ),
        Mode("compile-default", "peer", "sdpa through torch.compile", "sdpa", compile="default"),
        Mode(
            "compile-reduce-overhead",
            "peer",
            "sdpa through torch.compile, mode reduce-overhead (CUDA graphs)",
            "sdpa",
            True,
            "reduce-overhead",
            _CUDA,
        ),
        Mode(
            "compile-max-autotune",
            "peer",
            "sdpa through torch.compile, mode max-autotune (templates timed, CUDA graphs)",
            "sdpa",
            True,
            "max-autotune",
            _CUDA,
        ),
        Mode(
            "sdpa-graph",
            "peer",
            "sdpa captured in a CUDA graph, called so that a fused backend takes its mask",
            "sdpa",
            True,
            devices=_CUDA,
        ),
        Mode(
            "sdpa-graph-trap",
            "peer",
            "sdpa captured as it comes: Hugging Face builds a mask and SDPA may take its math path",
            "sdpa",
            True,
            devices=_CUDA,
        ),
        Mode("fusescope", "ours", 'Hugging Face with attn_implementation="fusescope"', "fusescope"),
        Mode(
            "fusescope-graph", "ours", "the same captured in a CUDA graph", "fusescope", True, devices=_CUDA
        ),
        Mode(
            "fused",
            "ours",
            "every kernel of the layer fused, padding removed, one CUDA graph per shape bucket",
            None,
            True,
        ),
        *(
            Mode(
                f"fused-{weights}",
                "ours",
                f"our decoder with weights in {words}, a scale per output channel: up to 16 tokens at a time "
                "read them as they are; for more, as in a prompt, they are dequantised before each product, "
                "which shows the accuracy, not the speed",
                None,
                True,
                quantised=weights,
            )
            for weights, words in (("int8", "int8"), ("fp8", "fp8 (e4m3)"))
        ),
        Mode(
            "fused-fp8-cache",
            "ours",
            "our decoder over a KV cache in fp8 (e4m3), a scale per layer and KV head measured on the "
            "prompt, which is computed in the model's dtype; phases decode and generate",
            None,
            True,
            quantised=FP8_CACHE,
        ),
    )
}
_DECODER = (
    "our decoder: packed weights, bias, activation and residual in the products, our attention, CUDA graphs"
)
COMPILES = {
    "flex": {"cpu": 30.0, "cuda": 10.0},
    "flash": {"cuda": 10.0},
    "flash-graph": {"cuda": 10.0},
    "compile-default": {"cpu": 40.0, "cuda": 25.0},
    "compile-reduce-overhead": {"cuda": 25.0},
    "compile-max-autotune": {"cuda": 90.0},
}
"""Seconds that a mode spends in a compiler for a new case: first guesses for the cost line."""


REFERENCE_S = 5.0
"""Seconds that the weights and the model in float64 take besides the arithmetic: likewise."""


def quantised_of(mode: str) -> str | None:
    """What a mode quantises (Mode.quantised); None where nothing, and for what is no mode."""
    return MODES[mode].quantised if mode in MODES else None


def modes(name: str, device: str = "cpu") -> list[Implementation]:
    """Every mode of a model on a device ("cpu", "cuda" or "cuda:1"); those that are not available carry the
    reason."""
    module, kind = catalog.family(name), device.split(":")[0]
    found = []
    for mode in MODES.values():
        reason = None
        if kind not in mode.devices:
            reason = f"{mode.name} exists on {' and '.join(mode.devices)}; the device is {device}"
        elif mode.package and not installed(mode.package):
            reason = f"{mode.name} needs the package {mode.package}, which is not installed"
        elif isinstance(module, architecture.Architecture):
            reason = architecture.reason(module, mode)
        elif mode.attention is None and module.STRUCTURE is None:
            reason = f"{mode.name} has the layers of BERT, ViT, GPT-2 and Llama, not those of {name}"
        elif mode.quantised and module.STRUCTURE != "decoder":
            reason = f"{mode.name} has the layers of GPT-2 and Llama, not those of {name}"
        elif mode.attention in ("flex_attention", FLASH) and module.KIND == "encoder-decoder":
            reason = f"{mode.name} does not take the position biases that {name} adds to its scores"
        found.append(
            Implementation(
                mode.name,
                mode.kind,
                _DECODER if mode.name == "fused" and module.STRUCTURE == "decoder" else mode.idea,
                mode.devices,
                "backend/fusescope/models/run/modes.py",
                None,
                reason,
            )
        )
    return found


def mode(name: str, mode_name: str, device: str = "cpu") -> Implementation:
    """One mode of a model by name; ValueError naming what there is."""
    for item in modes(name, device):
        if item.name == mode_name:
            return item
    raise ValueError(f"{name} has no execution mode {mode_name!r}; it has {', '.join(MODES)}")
