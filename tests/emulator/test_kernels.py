"""Every CUDA kernel's own source on the CPU, thread by thread: index arithmetic, barriers, tails, fragments.

Kernels are found, not listed: a new cuda/<family>/v9_x.cu is compiled and run here as it is.
"""

import shutil
from pathlib import Path

import pytest

from fusescope import ops
from fusescope.core import paths
from fusescope.core.sources import families
from tests import emulator
from tests.emulator.cases_unseen import CHECKS

pytestmark = pytest.mark.slow

KERNELS = [v for family in families().values() for v in family.variants if v.device == "cuda"]
WRONG = Path(__file__).parents[1] / "wrong" / "cuda"
WRONG_KERNELS = {
    "softmax_missing_barrier": "out of tolerance",
    "softmax_divergent_barrier": "deadlock",
    "gemm_short_tail": "out of tolerance",
}
_SINKS = "if constexpr (kScored<Args>) return add_sink(keys, sink);"
_FACTOR = "    constexpr float kFactor = kBiasedItems<Args> ? kLog2e : 1.f;\n"
WRONG_WITH_WORK_ITEMS = {
    "scores computed again without the soft-cap": (
        "hopper_consumer.cuh",
        "            if constexpr (kScored<Args>) cap_scores(x, args);\n",
        "",
    ),
    "the sink in every part": ("hopper_work_items.cuh", "if (!has_previous && args.", "if (args."),
    "a sink that later parts do not know": ("hopper_log_sums.cuh", _SINKS, ""),
    "the sink in every piece of a list": (
        "hopper_consumer.cuh",
        _FACTOR,
        _FACTOR + "if constexpr (kScored<Args>) if (slot >= 0 && args.more.sinks) for (int r = 0; r < 2; ++r)"
        " rows.sum(r) += exp2_approx(args.more.sinks[item.y % args.heads] * kLog2e - rows.reference[r]);",
    ),
    "rows computed again without the soft-cap and the sink": (
        "hopper_work_items.cuh",
        "scored_of(args)",
        "AttentionScored{}",
    ),
}
"""Mistakes in v5's soft-cap and sinks: file, what stands there, what stands there instead."""
WRONG_WITH_A_BIAS = {
    "scores computed again without the bias": ("hopper_consumer.cuh", "            add_elements();\n", ""),
    "the bias of other keys": ("hopper_consumer.cuh", "ring.at(biases), args", "ring.at(biases + 1), args"),
    "a bias for keys in another order": (
        "hopper_items_bias.cuh",
        "(n & args.k_mask) * args.k_modulus",
        "(n & args.k_mask)",
    ),
    "pieces of a list merged in other units": (
        "hopper_consumer.cuh",
        "kFactor = kBiasedItems<Args> ? kLog2e : 1.f",
        "kFactor = 1.f",
    ),
    "parts merged in other units": (
        "hopper_log_sums.cuh",
        "exp2_approx((now - top) * kLog2e)",
        "exp2_approx(now - top)",
    ),
}
"""The same in its bias."""
WRONG_WITH_PIECES = {
    "joined before the last has come": ("hopper_partials.cuh", "unsigned(piece.y)", "unsigned(piece.y) - 1"),
    "joined without their maxima": ("hopper_partials.cuh", "values[i] * theirs[i / 2 % 2]", "values[i]"),
    "rows of earlier parts left out": (
        "hopper_consumer.cuh",
        "if (what & kLastRound)\n        work.previous_lse",
        "if (what & kLastRound && slot < 0)\n        work.previous_lse",
    ),
}
"""The same in joining the pieces of a list."""
_WRONG = WRONG_WITH_WORK_ITEMS | WRONG_WITH_A_BIAS | WRONG_WITH_PIECES


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


@pytest.mark.sample(3)
@pytest.mark.parametrize("mistake", _WRONG)
def test_a_mistake_with_work_items_shows(server, mistake, tmp_path, monkeypatch):
    name, right, wrong = _WRONG[mistake]
    shutil.copytree(paths.cuda_sources(), tmp_path / "cuda")
    file = tmp_path / "cuda" / "attention" / name
    assert file.read_text().count(right) == 1
    file.write_text(file.read_text().replace(right, wrong))
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path / "cuda"))
    library = emulator.build("attention", [families()["attention"].variant("v5_parts")])
    found = [r for r in server.run(library, "attention", "v5_parts") if r["wrong"]]
    assert found
    if mistake not in WRONG_WITH_PIECES:
        modified = ("layout",) if mistake in WRONG_WITH_A_BIAS else ("sinks", "softcap")
        assert all(any(word in r["case"] for word in modified) for r in found), found
