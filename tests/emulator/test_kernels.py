"""Every CUDA kernel's own source on the CPU, thread by thread: index arithmetic, barriers, tails, fragments.

Kernels are found, not listed: a new cuda/<family>/v9_x.cu is compiled and run here as it is.
"""

from pathlib import Path

import pytest

from fusescope import ops
from fusescope.core.sources import families
from tests import emulator
from tests.emulator.cases_unseen import CHECKS
from tests.emulator.run import Server

pytestmark = pytest.mark.slow

KERNELS = [v for family in families().values() for v in family.variants if v.device == "cuda"]
WRONG = Path(__file__).parents[1] / "wrong" / "cuda"
WRONG_KERNELS = {
    "softmax_missing_barrier": "out of tolerance",
    "softmax_divergent_barrier": "deadlock",
    "gemm_short_tail": "out of tolerance",
}


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


def _operator(family: str) -> str:
    return next(name for name in ops.names() if family == ops.load(name).FAMILY)


@pytest.mark.parametrize("variant", KERNELS, ids=lambda v: f"{v.family}-{v.name}")
def test_kernel(server, variant):
    if variant.not_emulated:
        pytest.skip(f"{variant.label} is not emulated: {variant.not_emulated}")
    op = _operator(variant.family)
    results = server.run(emulator.build(variant.family, [variant]), op, variant.name)
    assert [r for r in results if r["wrong"]] == []
    assert any(r["refused"] is None for r in results), f"it refused every case: {results}"


def _unseen() -> list:
    """(kernel, check of a masked key)."""
    return [
        pytest.param(v, check, id=f"{v.family}-{v.name}-{check}")
        for v in KERNELS
        if not v.not_emulated
        for check in CHECKS.get(v.family, ())
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("variant, check", _unseen())
def test_masked_is_unseen(server, variant, check):
    results = server.run(emulator.build(variant.family, [variant]), variant.family, variant.name, check)
    if all(r["refused"] for r in results):
        pytest.skip(f"{variant.label} takes none of these: {results[0]['refused']}")
    assert [r for r in results if r["wrong"]] == []


@pytest.mark.parametrize("name", WRONG_KERNELS)
def test_wrong_kernel_shows(server, name):
    family = name.split("_")[0]
    library = emulator.build(family, [WRONG / f"{name}.cu"])
    try:
        reasons = [r["wrong"] for r in server.run(library, _operator(family), name) if r["wrong"]]
    except RuntimeError as error:
        reasons = [str(error)]
    assert any(WRONG_KERNELS[name] in reason for reason in reasons), reasons
