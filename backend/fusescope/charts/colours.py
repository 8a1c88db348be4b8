"""One colour and one marker per implementation, the same on every chart and page, from its name alone.

Ours are of one hue family (red to ochre), peers greys and blues, a user's own reddish purple; every one keeps
a contrast of 3:1 to the light and to the dark page. The families stay apart under every common colour-vision
deficiency (Okabe and Ito, "Color Universal Design", 2008). Within a family the range of hues is short: what
appears together has colours of its own, and other markers where a deficiency brings two colours close.
Green and purple are for faster and slower (``template``), no implementation's. What is no implementation (a
mask, a cause, a unit of the device) takes its colours from ``SERIES``: no orange, no green.
"""

from __future__ import annotations

import re
import zlib

from fusescope.core.naming import kind as kind
from fusescope.core.records import short as short

OURS = "#D1610A"
"""Kernels of ours as a group, where single ones are not distinguished."""
SERIES = ("#0072B2", "#8A7A00", "#B75A92", "#56A0C9", "#5B6FB5", "#C9A227", "#7D8590", "#C58FB0")
"""Parts, causes, units and masks, in the order of use: neighbours stay apart with every colour vision."""

_LADDER = re.compile(r"^v(\d+)_")
_STEPS = (
    ("#9E4A47", "circle"),
    ("#D17C73", "triangle-up"),
    (OURS, "diamond"),
    ("#8A5A07", "star"),
    ("#D02A1A", "pentagon"),
    ("#BD7455", "hexagon"),
    ("#DB5A4E", "hourglass"),
)
"""v1, v2, …; further steps share the last."""
_FP32 = ("#B26562", "triangle-left")  # a step's variant with fp32 products, beside the step
_CPU = ("#946B43", "triangle-right")
_OURS = {
    "auto": ("#E57339", "star"),
    "attention": ("#BD7455", "octagon"),
    "hand_fused": ("#8A5A07", "star"),
    "fused": (OURS, "diamond"),
    "fused-int8": ("#BD7455", "hexagon"),
    "fused-fp8": ("#DB5A4E", "hourglass"),
    "fused-fp8-cache": ("#C98A2B", "bowtie"),
    "fusescope": ("#9E4A47", "circle"),
    "fusescope-graph": ("#D17C73", "triangle-up"),
}
_PEERS = {
    "eager": ("#7A7E82", "square"),
    "torch": ("#7A7E82", "square"),
    "unfused": ("#7A7E82", "square"),
    "sdpa": ("#0072B2", "cross"),
    "sdpa_flash": ("#1BA4A8", "triangle-down"),
    "sdpa_cudnn": ("#4191FA", "x"),
    "sdpa_efficient": ("#5B608A", "bowtie"),
    "sdpa_math": ("#676B6B", "diamond-wide"),
    "sdpa_grouped": ("#2578E5", "diamond-wide"),
    "sdpa_nested": ("#0A89A8", "diamond-wide"),
    "flex": ("#0F4EFA", "hexagram"),
    "flex_flash": ("#2578E5", "hexagon"),
    "flash4": ("#3698D1", "octagon"),
    "flash_varlen": ("#3698D1", "octagon"),
    "cudnn_blocks": ("#215CD1", "star-square"),
    "composed": ("#69748A", "star-diamond"),
    "compile": ("#1BA4A8", "triangle-down"),
    "inductor": ("#1BA4A8", "triangle-down"),
    "compile_sdpa": ("#0A89A8", "x"),
    "autotune": ("#4191FA", "bowtie"),
    "cublaslt": ("#215CD1", "octagon"),
    "dense": ("#0072B2", "cross"),
    "gather": ("#4191FA", "bowtie"),
    "sparse": ("#0072B2", "octagon"),
    "rms_norm": ("#0072B2", "cross"),
    "flashinfer": ("#215CD1", "octagon"),
    "flashinfer_tensor": ("#3698D1", "hexagon"),
    "flashinfer_xqa": ("#0A89A8", "star-square"),
    "vllm": ("#4191FA", "bowtie"),
    "compile-default": ("#1BA4A8", "triangle-down"),
    "compile-reduce-overhead": ("#0A89A8", "x"),
    "compile-max-autotune": ("#4191FA", "bowtie"),
    "flash": ("#215CD1", "star-square"),
    "flash-graph": ("#5B608A", "diamond-wide"),
    "sdpa-graph": ("#3698D1", "octagon"),
    "sdpa-graph-trap": ("#69748A", "star-diamond"),
}
_OTHERS = ("#4191FA", "#215CD1", "#69748A", "#0A89A8", "#5B608A", "#3698D1", "#2578E5")
_USERS = ("#B75A92", "#A0528C", "#C4609F")
_GLYPHS = {
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "diamond-wide": "◆",
    "star-diamond": "◆",
    "triangle-up": "▲",
    "triangle-down": "▼",
    "triangle-left": "◀",
    "triangle-right": "▶",
    "cross": "✚",
    "x": "✖",
    "star": "★",
    "hexagram": "✶",
    "star-square": "✶",
    "pentagon": "⬟",
    "hexagon": "⬢",
    "octagon": "⯃",
    "hourglass": "⧗",
    "bowtie": "⧓",
}


def colour(impl: str) -> str:
    """The colour of an implementation as #RRGGBB."""
    return _look(impl)[0]


def marker(impl: str) -> str:
    """plotly's name of an implementation's marker."""
    return _look(impl)[1]


def glyph(impl: str) -> str:
    """The marker as a character, for labels."""
    return _GLYPHS[marker(impl)]


def _look(impl: str) -> tuple[str, str]:
    if known := _OURS.get(impl) or _PEERS.get(impl):
        return known
    if step := _LADDER.match(impl):
        return _FP32 if impl.endswith("_fp32") else _STEPS[min(int(step[1]), len(_STEPS)) - 1]
    if kind(impl) == "ours":
        return _CPU
    # A stable hash: Python's own differs from process to process.
    number, hues = zlib.crc32(impl.encode()), _USERS if kind(impl) == "user" else _OTHERS
    return hues[number % len(hues)], tuple(_GLYPHS)[number // len(hues) % len(_GLYPHS)]
