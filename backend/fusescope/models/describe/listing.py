"""The ways to run a model, as a list with the reason where one cannot be had. No torch; running.py makes
them."""

from __future__ import annotations

from dataclasses import dataclass

from fusescope.models.describe import catalog
from fusescope.ops.base import Implementation


@dataclass(frozen=True)
class Way:
    """kind: "ours" or "peer"; attention: Hugging Face's attn_implementation, None for our own encoder; graph:
    calls replay a CUDA graph of their own; compile: torch.compile's mode, None where it is not used; devices:
    device types it exists on."""

    name: str
    kind: str
    idea: str
    attention: str | None
    graph: bool = False
    compile: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")


_CUDA = ("cuda",)
WAYS = {
    w.name: w
    for w in (
        Way("eager", "peer", "Hugging Face with attention as matmul + softmax + matmul", "eager"),
        Way(
            "sdpa",
            "peer",
            "Hugging Face with scaled_dot_product_attention, the mask prepared outside the call",
            "sdpa",
        ),
        Way(
            "flex",
            "peer",
            "Hugging Face with FlexAttention, compiled, BlockMask made outside the call",
            "flex_attention",
        ),
        Way("compile-default", "peer", "sdpa through torch.compile", "sdpa", compile="default"),
        Way(
            "compile-reduce-overhead",
            "peer",
            "sdpa through torch.compile, mode reduce-overhead (CUDA graphs)",
            "sdpa",
            True,
            "reduce-overhead",
            _CUDA,
        ),
        Way(
            "compile-max-autotune",
            "peer",
            "sdpa through torch.compile, mode max-autotune (templates timed, CUDA graphs)",
            "sdpa",
            True,
            "max-autotune",
            _CUDA,
        ),
        Way(
            "sdpa-graph",
            "peer",
            "sdpa captured in a CUDA graph, called so that a fused backend takes its mask",
            "sdpa",
            True,
            devices=_CUDA,
        ),
        Way(
            "sdpa-graph-trap",
            "peer",
            "sdpa captured as it comes: Hugging Face builds a mask and SDPA may take its math path",
            "sdpa",
            True,
            devices=_CUDA,
        ),
        Way("fusescope", "ours", 'Hugging Face with attn_implementation="fusescope"', "fusescope"),
        Way("fusescope-graph", "ours", "the same captured in a CUDA graph", "fusescope", True, devices=_CUDA),
        Way(
            "fused",
            "ours",
            "every kernel of the layer fused, padding removed, one CUDA graph per shape bucket",
            None,
            True,
        ),
    )
}
COMPILES = {
    "flex": {"cpu": 30.0, "cuda": 10.0},
    "compile-default": {"cpu": 40.0, "cuda": 25.0},
    "compile-reduce-overhead": {"cuda": 25.0},
    "compile-max-autotune": {"cuda": 90.0},
}
"""Seconds that a way spends in a compiler for a new case: first guesses for the cost line."""


def ways(name: str, device: str = "cpu") -> list[Implementation]:
    """Every way for a model on a device ("cpu", "cuda" or "cuda:1"); those that it does not have carry the
    reason."""
    module, kind = catalog.family(name), device.split(":")[0]
    found = []
    for way in WAYS.values():
        reason = None
        if kind not in way.devices:
            reason = f"{way.name} exists on {' and '.join(way.devices)}; the device is {device}"
        elif way.attention is None and module.STRUCTURE is None:
            reason = f"{way.name} is for encoders of the structure of BERT or ViT; {name} is of the kind {module.KIND}"
        elif way.attention == "flex_attention" and module.KIND == "encoder-decoder":
            reason = f"{way.name} does not take the position biases that {name} adds to its scores"
        found.append(
            Implementation(
                way.name,
                way.kind,
                way.idea,
                way.devices,
                "backend/fusescope/models/run/modes.py",
                None,
                reason,
            )
        )
    return found


def way(name: str, way_name: str, device: str = "cpu") -> Implementation:
    """One way of a model by name; ValueError naming what there is."""
    for item in ways(name, device):
        if item.name == way_name:
            return item
    raise ValueError(f"{name} has no way {way_name!r}; it has {', '.join(WAYS)}")
