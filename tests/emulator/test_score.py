"""Every kernel that takes a score expression, compiled with some, on the CPU's emulator."""

import pytest

from fusescope.core.sources import families
from tests import emulator
from tests.emulator import cases_score

pytestmark = pytest.mark.slow

DTYPES = ("float32", "float16", "bfloat16")  # FusescopeDtype
KERNELS = [
    v for v in families(("attention",))["attention"].variants if v.takes.expressed and v.device == "cuda"
]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("variant", KERNELS, ids=lambda v: v.name)
def test_kernel(server, variant, number):
    one = cases_score.of(variant.name)[number]
    header = cases_score.inputs(one, one.cases[0], 0)["score"].header
    library, name = emulator.build_expressed(variant, header, DTYPES.index(one.dtype), one.head_dim)
    results = server.run(library, "attention", name, f"{cases_score.CHECK}{number}")
    assert results and [r for r in results if r["wrong"]] == []
