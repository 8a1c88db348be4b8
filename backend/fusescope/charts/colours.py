"""One colour an implementation, the same on every chart and page, from its name alone.

Ours are one hue family (orange), peers are greys and blues, a user's own is reddish purple; every one keeps a
contrast of 3:1 to the light and to the dark page. Orange against blue and grey stays apart under every common
colour-vision deficiency (Okabe and Ito, "Color Universal Design", 2008); direct labels carry the name in any
case.
"""

from __future__ import annotations

import re
import zlib

from fusescope.core.records import short as short

_OURS = ("#C97B2C", "#E0761A", "#D55E00", "#B5651D", "#C24A12", "#B83A1B", "#A8501F")
_CPU = "#E0761A"
_AUTO = "#D55E00"
_USER = "#B75A92"
_KNOWN_PEERS = {
    "eager": "#7D8590",
    "sdpa": "#0072B2",
    "sdpa_flash": "#0072B2",
    "sdpa_cudnn": "#3C8FCB",
    "sdpa_efficient": "#5C7FA3",
    "sdpa_math": "#8A9199",
    "flex": "#5B6FB5",
    "flex_attention": "#5B6FB5",
    "compile": "#6B7C93",
    "compile-default": "#6B7C93",
    "compile-reduce-overhead": "#4F97C9",
    "compile-max-autotune": "#2F7FB8",
    "sdpa-graph": "#3C8FCB",
    "sdpa-graph-trap": "#8A9199",
}
_OTHER_PEERS = ("#4F97C9", "#3F6FA0", "#7A8BA0", "#2F7FB8", "#6C87B8", "#4A86B0")
_OUR_MODES = {"fused": "#D55E00", "fusescope": "#E0761A", "fusescope-graph": "#B5651D"}
_LADDER = re.compile(r"^v(\d+)_")


def kind(impl: str) -> str:
    """ "ours", "user" or "peer", from the name's form: vN_idea and cpu* are our kernels, fused and fusescope*
    our execution modes of a model, file.py:function a user's."""
    if ".py:" in impl:
        return "user"
    ours = impl == "auto" or impl.startswith("cpu") or impl in _OUR_MODES or _LADDER.match(impl)
    return "ours" if ours else "peer"


def colour(impl: str) -> str:
    """The colour of an implementation as #RRGGBB."""
    if kind(impl) == "user":
        return _USER
    if impl == "auto":
        return _AUTO
    if impl in _OUR_MODES:
        return _OUR_MODES[impl]
    if step := _LADDER.match(impl):
        return _OURS[min(int(step[1]), len(_OURS)) - 1]
    if kind(impl) == "ours":
        return _CPU
    # A stable hash: Python's own differs from process to process.
    return _KNOWN_PEERS.get(impl) or _OTHER_PEERS[zlib.crc32(impl.encode()) % len(_OTHER_PEERS)]
