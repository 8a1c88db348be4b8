"""The CUDA kernels of the dense operators, executed thread for thread on the CPU: index arithmetic, barriers,
tails, fragments.

The library is compiled once (kept in the build cache). The emulated kernels answer to the names of the real
operators, so they run in processes of their own: one for everything, and one for each further way to run the
matrix products.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import emulator
import pytest

from fusescope.core import paths

WRONG = Path(__file__).parents[1] / "wrong" / "cuda"
KERNELS = {
    "add": ("v1_one_element", "v2_vectorised"),
    "gemm": ("v1_naive",),
    "bmm": ("v1_tiled", "v2_tensor_core"),  # their tiles are those of gemm's v2_tiled and v3_tensor_core
    "softmax": ("v1_block_row", "v2_warp_row", "v3_registers"),
    "layernorm": ("v1_block_row", "v2_registers"),
}
WRONG_KERNELS = {
    "gemm": (WRONG / "gemm_short_tail.cu",),
    "softmax": (WRONG / "softmax_missing_barrier.cu", WRONG / "softmax_divergent_barrier.cu"),
}
PRODUCTS = [(1, 1, 1), (7, 7, 7), (33, 33, 33), (64, 72, 40), (70, 136, 200)]
ROWS = [1, 7, 33, 256, 500, 1000, 1024, 1030, 2048, 3000, 4096, 5000, 8192, 16384, 32768, 32769, 40000]
"""A length for every way a row is held, with and without whole 16-byte packs, and some too long for a block's
registers."""


def _product_cases(sizes):
    cases = []
    for impl, dtypes in (("v1_tiled", ("float32", "bfloat16")), ("v2_tensor_core", ("float16",))):
        for dtype in dtypes:
            for m, n, k in sizes:
                alone = {"batch_a": "none", "batch_b": "none", "m": m, "n": n, "k": k}
                cases += [["bmm", impl, alone, dtype, contiguous] for contiguous in (True, False)]
        cases.append(
            ["bmm", impl, {"batch_a": "2x1", "batch_b": "3", "m": 24, "n": 16, "k": 72}, dtypes[0], True]
        )
        cases.append(
            ["bmm", impl, {"batch_a": "none", "batch_b": "2", "m": 9, "n": 12, "k": 20}, "bfloat16", False]
        )
    return cases


def _right_cases():
    cases = [
        ["add", impl, {"n": n}, dtype, n != 7]
        for impl in KERNELS["add"]
        for dtype in ("float32", "float16")
        for n in (1, 7, 1000)
    ]
    cases += [
        ["gemm", "v1_naive", {"m": m, "n": n, "k": k}, "float32", c]
        for m, n, k in PRODUCTS[1:4]
        for c in (True, False)
    ]
    for op in ("softmax", "layernorm"):
        for impl in KERNELS[op]:
            for i, n in enumerate(ROWS):
                values = {"rows": 5 if n <= 1024 else 1, "cols": n}
                cases += [[op, impl, values, "float16", True], [op, impl, values, "float32", i % 2 == 0]][
                    : 2 if n <= 4096 else 1
                ]
    return cases


WRONG_CASES = {
    "missing barrier": ["softmax", "softmax_missing_barrier", {"rows": 2, "cols": 300}, "float32", True],
    "unwritten tail": ["gemm", "gemm_short_tail", {"m": 9, "n": 40, "k": 5}, "float32", True],
}


@pytest.fixture(scope="module")
def library():
    return emulator.build(KERNELS, WRONG_KERNELS)


def emulate(library, cases, **environment):
    """What is wrong with each case; the process's stderr as text where it fails."""
    env = os.environ | {"PYTHONPATH": str(paths.IMPORT_ROOT)} | environment
    script = Path(__file__).with_name("emulated_run.py")
    done = subprocess.run(
        [sys.executable, str(script), str(library)],
        input=json.dumps(cases),
        env=env,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr


def _faults(cases, answer):
    assert isinstance(answer, list), answer
    assert len(answer) == len(cases)
    return [f"{case}: {reason}" for case, reason in zip(cases, answer) if reason]


@pytest.fixture(scope="module")
def everything(library):
    """The right kernels and the wrong ones, in one process."""
    cases = _right_cases() + _product_cases(PRODUCTS) + list(WRONG_CASES.values())
    answer = emulate(library, cases)
    assert isinstance(answer, list), answer
    return dict(zip(map(json.dumps, cases), answer))


@pytest.mark.parametrize(("op", "impl"), [(op, impl) for op, impls in KERNELS.items() for impl in impls])
def test_kernels_are_right(everything, op, impl):
    own = {case: reason for case, reason in everything.items() if json.loads(case)[:2] == [op, impl]}
    assert len(own) >= 6
    assert not {case: reason for case, reason in own.items() if reason}


@pytest.mark.parametrize(("copies", "multiprocessors"), [("late", "3"), ("early", "1")])
def test_larger_tiles_with_copies_that_come_late_or_early(library, copies, multiprocessors):
    """Few multiprocessors make the launchers choose larger tiles: with the run above, every shape of tile has
    been tried."""
    cases = _product_cases(PRODUCTS[3:])
    assert not _faults(cases, emulate(library, cases, EMULATED_COPIES=copies, EMULATED_SMS=multiprocessors))


@pytest.mark.parametrize("fault", WRONG_CASES)
def test_wrong_kernels_show(everything, fault):
    assert everything[json.dumps(WRONG_CASES[fault])]


def test_a_barrier_that_not_all_threads_reach_is_named(library):
    case = ["softmax", "softmax_divergent_barrier", {"rows": 1, "cols": 100}, "float32", True]
    answer = emulate(library, [case])
    assert isinstance(answer, str) and "deadlock" in answer
