"""The options of a Transformer layer, shared by the verbs of the fusion search."""

from __future__ import annotations

from fusescope.core.machine import environment
from fusescope.search.scheme.setting import PARAMETERS, Setting

_DEFAULTS = {
    "batch": "1",
    "seq": "128",
    "ffn": "4 * heads * head size",
    "dtype": "float16 on a GPU, float32 on the CPU",
    "device": "the first GPU, else the CPU",
}


def options(parser) -> None:
    """--batch … --compiler; ``setting`` reads them."""
    group = parser.add_argument_group("the layer")
    for p in PARAMETERS:
        group.add_argument(
            f"--{p.name.replace('_', '-')}",
            choices=p.choices or None,
            help=f"{p.help} (default {_DEFAULTS.get(p.name, p.default_text)})",
        )


def setting(args) -> Setting:
    """What the options ask for; ValueError for what is not supported."""
    given = {p.name: p.read(text) for p in PARAMETERS if (text := getattr(args, p.name)) is not None}
    device = given.setdefault("device", environment.devices()[0])
    first = {"batch": 1, "seq": 128, "dtype": "float32" if device == "cpu" else "float16"}
    return Setting(**first | given)
