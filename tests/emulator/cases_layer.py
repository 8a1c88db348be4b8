"""Cases of the layer's operators."""

from __future__ import annotations

from itertools import product

import torch

from fusescope import ops
from fusescope.measure.checking.check import compare
from fusescope.ops.common.algorithms import FEW_ROWS
from tests.emulator.cases import Case, Emulation, through_function
from tests.emulator.cases_dense import rows

ROWS = (1, 7, 33, 72, 250, 776, 1000, 1030, 2048, 5000, 16384, 40000)


def _bias_residual_layernorm(impl):
    yield from rows(ROWS)(impl)
    yield Case({"rows": 2200, "cols": 24})  # rows enough for a warp each


def _bias_gelu(impl):
    for i, n in enumerate((1, 7, 33, 64, 776, 3000)):
        yield Case({"rows": (1, 5, 70)[i % 3], "cols": n, "approximate": ("none", "tanh")[i % 2]}, 2)


def _split_heads(impl):
    for batch, seq, heads, kv_heads, head_dim in (
        (1, 1, 1, 1, 1),
        (2, 7, 4, 2, 8),
        (3, 33, 2, 1, 9),
        (9, 5, 12, 3, 16),
    ):
        values = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        yield Case(values, 2)


def _linear(impl):
    for i, (count, inputs, outputs) in enumerate(((1, 1, 1), (9, 40, 24), (33, 7, 5), (70, 64, 136))):
        for activation, residual in product(("none", "gelu", "gelu_tanh"), ("no", "yes")):
            values = {"rows": count, "inputs": inputs, "outputs": outputs}
            yield Case(values | {"activation": activation, "residual": residual}, contiguous=i % 2 == 0)
    for count, inputs, outputs, sms in ((1, 1104, 24, 3), (7, 2120, 72, 1), (16, 552, 72, 1), (12, 40, 8, 3)):
        values = {"rows": count, "inputs": inputs, "outputs": outputs}
        for how in ({"activation": "gelu", "residual": "yes"}, {}):
            yield Case(values | how, contiguous=True, sms=sms)  # some kernels take few rows alone


def _linear_run(op, impl, values, dtype, contiguous, seed):
    """The layer; where the kernel computes SwiGLU of a product too, that against its own product."""
    wrong = through_function(op, impl, values, dtype, contiguous, seed)
    values = ops.load(op).validate(values)
    if wrong or impl != FEW_ROWS or (values["activation"], values["residual"]) != ("none", "no"):
        return wrong
    given = ops.load(op).inputs(values, dtype, "cpu", seed, contiguous)
    operands = given["x"], given["weight"], given["bias"]
    gate, up = torch.ops.fusescope.linear(*operands, None, 0, False, impl).double().chunk(2, -1)
    out = torch.ops.fusescope.linear_swiglu(*operands, True, impl)
    return compare(out, torch.nn.functional.silu(gate) * up, ops.load("swiglu").tolerance({}, dtype)).reason


def _padding(impl):
    for batch, seq, cols, mean in (
        (1, 1, 1, 60),
        (7, 33, 8, 60),
        (5, 9, 7, 20),
        (1100, 2, 4, 70),
        (3, 40, 520, 100),
    ):
        for direction in ("pack", "unpack"):
            yield Case({"batch": batch, "seq": seq, "cols": cols, "mean": mean, "direction": direction})


def _embedding_layernorm(impl):
    for batch, seq, cols, vocab in (
        (1, 1, 1, 1),
        (2, 7, 33, 50),
        (3, 5, 72, 9),
        (1, 3, 776, 20),
        (1, 2, 5000, 3),
    ):
        yield Case({"batch": batch, "seq": seq, "cols": cols, "vocab": vocab}, 2)


EMULATIONS = {
    "bias_residual_layernorm": Emulation(_bias_residual_layernorm, through_function),
    "bias_gelu": Emulation(_bias_gelu, through_function),
    "split_heads": Emulation(_split_heads, through_function),
    "linear": Emulation(_linear, _linear_run),
    "padding": Emulation(_padding, through_function),
    "embedding_layernorm": Emulation(_embedding_layernorm, through_function),
}
