"""Cases of packed attention: sequences of any lengths, windows."""

from __future__ import annotations

import torch

from tests.attention import varlen_tools
from tests.emulator.cases import Emulation, copied

_PACKED = (
    {"queries": (1,), "keys": (1,)},
    {"queries": (65, 0, 3, 130), "keys": (65, 0, 3, 130), "causal": True},
    {"queries": (5, 70, 1), "keys": (80, 20, 0), "heads": (2, 1), "dim": 40, "causal": True},
    {"queries": (3, 66), "keys": (100, 7), "heads": (3, 1), "dim": 64, "more": 7},
    {"queries": (1,) * 45 + (20,), "keys": (2,) * 45 + (70,), "dim": 96, "causal": True},
    {"queries": (0, 64, 33), "keys": (9, 128, 65), "dim": 128},
    {"queries": (17,), "keys": (70,), "dim": 136, "causal": True},
    {"queries": (20, 3), "keys": (5, 66), "dim": 256},
    {"queries": (200, 90), "keys": (330, 100), "dim": 64, "causal": True, "more": 2},
    {"queries": (150, 3), "keys": (90, 200), "dim": 128},
)
"""The last two: two warpgroups a block that stop at different tiles."""
_WINDOWED = (
    {"queries": (1, 65, 0, 3), "keys": (1, 65, 4, 0), "window": (0, 0)},
    {"queries": (200, 20), "keys": (200, 20), "dim": 64, "window": (70, 40), "more": 3},
    {"queries": (200, 3), "keys": (200, 130), "dim": 128, "window": (63, -1), "causal": True},
    {"queries": (150, 40), "keys": (330, 90), "dim": 64, "window": (127, 0), "causal": True},
    {"queries": (330,), "keys": (150,), "dim": 96, "window": (64, 9), "heads": (2, 1)},
    {"queries": (200, 30), "keys": (210, 25), "dim": 64, "window": (-1, 5), "heads": (3, 1)},
    {"queries": (130, 9), "keys": (300, 70), "dim": 128, "window": (20, -1)},
    {"queries": (70, 30), "keys": (70, 30), "dim": 136, "window": (5, 5)},
    {"queries": (1,) * 45 + (200,), "keys": (2,) * 45 + (190,), "window": (30, 3), "dim": 64},
    {"queries": (300,), "keys": (300,), "dim": 64, "window": (128, 128), "heads": (2, 2)},
)
"""Windows of no width, with edges in and between tiles, longer than a sequence, on one side; rows without a
key; tiles that one warpgroup alone needs, at either end."""


def _varlen(impl):
    """With one multiprocessor v3 has two warpgroups a block from some 128 rows and heads on."""
    for number, values in enumerate(_PACKED):
        yield from copied("attention_varlen", impl, values, (1, 132) if number >= 8 else (132, 1))
    for number, values in enumerate(_WINDOWED):
        yield from copied("attention_varlen", impl, values, (1, 132) if number % 2 else (1, 1))


def _execute_varlen(op, impl, values, dtype, contiguous, seed):
    case = varlen_tools.make(**values, dtype=dtype, strided=not contiguous)
    window = case.window or ()
    out = torch.ops.fusescope.attention_varlen(*case.args, case.causal, case.scale, impl, *window)
    return varlen_tools.wrong(out, case, dtype)


EMULATIONS = {"attention_varlen": Emulation(_varlen, _execute_varlen)}
