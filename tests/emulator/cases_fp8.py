"""Cases of attention on e4m3 operands, quantised in the call by the emulated kernel too."""

from __future__ import annotations

from tests.attention import fp8_tools
from tests.emulator.cases import Case, Emulation, copied, through_function

_SHAPES = (
    {"seq": 1, "head_dim": 64},
    {"seq": 65, "seq_k": 200, "head_dim": 128},
    {"seq": 200, "mask": "causal", "heads": 2, "kv_heads": 1, "head_dim": 128},
    {"seq": 130, "seq_k": 65, "mask": "causal", "head_dim": 64},  # rows without a key
    {"seq": 33, "seq_k": 330, "mask": "causal", "batch": 2, "head_dim": 64},
    {"seq": 390, "mask": "sliding_window:left=70,right=3", "head_dim": 128},
    {"seq": 390, "mask": "bigbird:window=5,global_tokens=3,block=64,random_blocks=1", "head_dim": 64},
    {"seq": 70, "seq_k": 130, "mask": "random:density=0.03", "head_dim": 128},
    {"seq": 150, "seq_k": 130, "mask": "padding:lengths=66+3", "batch": 2, "head_dim": 128},
    {"seq": 300, "mask": "document:lengths=90+150+60", "head_dim": 64},
    {"seq": 260, "seq_k": 700, "heads": 3, "head_dim": 64},  # several items a block
    {"seq": 600, "heads": 2, "mask": "causal", "head_dim": 128},
)


def _cases(impl):
    for values in _SHAPES:
        yield from copied("attention_fp8", impl, {"batch": 1, "heads": 1, "quantised": "inside"} | values)
    for check in fp8_tools.CHECKS:
        yield Case({"check": check.__name__}, contiguous=True)


def _execute(op, impl, values, dtype, contiguous, seed):
    if "check" in values:
        return getattr(fp8_tools, values["check"])(impl, dtype)
    return through_function(op, impl, values, dtype, contiguous, seed)


EMULATIONS = {"attention_fp8": Emulation(_cases, _execute)}
