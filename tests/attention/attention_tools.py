"""Shared by the attention tests: our kernels by discovery, small cases, and the comparison with the
reference."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from fusescope import masks, ops
from fusescope.core.sources import families

OP = ops.load("attention")
SIZES = ((1, 1), (7, 7), (33, 33), (65, 65), (130, 130), (33, 130), (130, 33), (1, 70), (64, 128))
COMPILER = {"cpu": "aot_eager", "cuda": "inductor"}
"""What compiles for a device where the graph is the subject and not its code. Inductor's C++ takes seconds;
test_attention_torch and tests/ops have it once for each idea."""
MASKS = tuple(name for name in masks.names() if name != "padding") + ("padding",)


def kernels():
    """pytest parameters (implementation, device): CPU kernels, and every CUDA kernel marked gpu."""
    found = families()["attention"].variants
    return [
        pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
        for v in found
    ]


def mask_text(name: str, batch: int, seq_k: int) -> str:
    """A mask of that name with its defaults; lengths where they have to be given."""
    if name == "padding":
        return "padding:lengths=" + "+".join(str(max(1, seq_k - 3 * i)) for i in range(batch))
    return name


def case(seq, seq_k=None, mask="full", **values):
    values = {"batch": 2, "heads": 2, "head_dim": 32} | values
    return OP.validate({"seq": seq, "seq_k": seq_k, "mask": mask, **values})


def fits(mask: str, seq: int, seq_k: int) -> bool:
    """Whether the mask exists at this size (documents by their defaults need a length of at least 4 for 4
    parts)."""
    try:
        case(seq, seq_k, mask)
    except ValueError:
        return False
    return True


def wrong(out, inputs, dtype: str) -> str | None:
    """None where a result is within tolerance of the reference everywhere, else what is wrong; the judge that
    measuring uses.

    The tolerance is that of rows with one live key: masks here leave some rows few.
    """
    from fusescope.measure.checking.check import compare

    reference = OP.reference(inputs)
    if out.shape != reference.shape or not out.is_contiguous():
        return f"shape {tuple(out.shape)}, strides {out.stride()}"
    return compare(out, reference, OP.TOLERANCE[dtype]).reason


def run(impl, device, values, dtype, seed=0, contiguous=True) -> str | None:
    """What is wrong with a kernel on one case, or None."""
    inputs = OP.inputs(values, dtype, device, seed, contiguous)
    with skip_unsupported(device):
        return wrong(OP.call(inputs, impl), inputs, dtype)


@contextmanager
def skip_unsupported(device: str):
    """On a GPU a kernel may decline a dtype or the architecture, and the test is skipped with its reason; on
    the CPU it may not."""
    from fusescope.core.errors import Unsupported

    try:
        yield
    except Unsupported as error:
        if device == "cpu":
            raise
        pytest.skip(str(error))
