"""One colour an implementation, the same on every chart and page, from its name alone.

Ours are one hue family (orange, from pale for v1 to deep for later versions, as a ladder climbs), peers are greys and blues,
a user's own is reddish purple. Orange against blue and grey stays apart under every common colour-vision deficiency
(Okabe and Ito, "Color Universal Design", 2008); direct labels carry the name in any case.
"""

from __future__ import annotations

import re
import zlib

_OURS = ("#F2B56B", "#EC9A3C", "#E37F1B", "#D55E00", "#B54E00", "#933E00", "#722F00")
_CPU = "#E37F1B"
_AUTO = "#D55E00"
_USER = "#CC79A7"
_KNOWN_PEERS = {
    "eager": "#8A9199",
    "sdpa": "#0072B2",
    "sdpa_flash": "#0072B2",
    "sdpa_cudnn": "#3C8FCB",
    "sdpa_efficient": "#6FB1E0",
    "sdpa_math": "#A9B1B9",
    "flex": "#004C78",
    "flex_attention": "#004C78",
    "compile": "#5B6FB5",
}
_OTHER_PEERS = ("#56B4E9", "#5C7FA3", "#2F6690", "#7A8BA0", "#8FB8DE", "#46627F")
_LADDER = re.compile(r"^v(\d+)_")


def kind(impl: str) -> str:
    """ "ours", "user" or "peer", from the name's form: vN_idea and cpu* are our kernels, file.py:function a user's."""
    if ".py:" in impl:
        return "user"
    return "ours" if impl == "auto" or impl.startswith("cpu") or _LADDER.match(impl) else "peer"


def colour(impl: str) -> str:
    """The colour of an implementation as #RRGGBB."""
    if kind(impl) == "user":
        return _USER
    if impl == "auto":
        return _AUTO
    if step := _LADDER.match(impl):
        return _OURS[min(int(step[1]), len(_OURS)) - 1]
    if kind(impl) == "ours":
        return _CPU
    # A stable hash: Python's own differs from process to process.
    return _KNOWN_PEERS.get(impl) or _OTHER_PEERS[zlib.crc32(impl.encode()) % len(_OTHER_PEERS)]


def short(impl: str) -> str:
    """The name as a label: a user's file without its folders."""
    return impl.rpartition("/")[2] if kind(impl) == "user" else impl
