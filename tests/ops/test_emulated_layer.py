"""The CUDA kernels of the layer, executed thread for thread on the CPU: index arithmetic, barriers, tails,
packed and single accesses. Compiled once into a library of their own; run in a process of its own, where they
answer to the real operators' names."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import emulator
import pytest

from fusescope.core import paths

KERNELS = {
    "bias_residual_layernorm": ("v1_block_row", "v2_registers", "v3_few_rows"),
    "bias_gelu": ("v1_one_element", "v2_vectorised"),
    "split_heads": ("v1_one_element", "v2_vectorised"),
    "linear": ("v1_heuristic", "v2_measured"),
    "padding": ("v1_one_word", "v2_vectorised"),
    "embedding_layernorm": ("v1_block_row", "v2_registers"),
}
ROWS = (1, 7, 33, 72, 250, 776, 1000, 1030, 2048, 5000, 16384, 40000)
"""A length for every way a row is held, with and without whole 16-byte packs, and one too long for a block's
registers."""


def _layernorm_cases(impl):
    for i, n in enumerate(ROWS):
        values = {"rows": 5 if n <= 1030 else 1, "cols": n}
        yield values, "float16", i % 3 != 0
        if n <= 2048:
            yield values, "float32", i % 2 == 0
    yield {"rows": 2200, "cols": 24}, "bfloat16", True  # rows enough for a warp each


def _gelu_cases(impl):
    for i, n in enumerate((1, 7, 33, 64, 776, 3000)):
        values = {"rows": (1, 5, 70)[i % 3], "cols": n, "approximate": ("none", "tanh")[i % 2]}
        yield values, ("float16", "bfloat16")[i % 2], True
        yield values, "float32", i % 2 == 0


def _heads_cases(impl):
    for i, (batch, seq, heads, kv_heads, head_dim) in enumerate(
        ((1, 1, 1, 1, 1), (2, 7, 4, 2, 8), (3, 33, 2, 1, 9), (9, 5, 12, 3, 16))
    ):
        values = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        yield values, ("float16", "bfloat16")[i % 2], True
        yield values, "float32", i % 2 == 0


def _linear_cases(impl):
    for i, (rows, inputs, outputs) in enumerate(((1, 1, 1), (9, 40, 24), (33, 7, 5), (70, 64, 136))):
        for j, (activation, residual) in enumerate(product(("none", "gelu", "gelu_tanh"), ("no", "yes"))):
            values = {
                "rows": rows,
                "inputs": inputs,
                "outputs": outputs,
                "activation": activation,
                "residual": residual,
            }
            yield values, ("float16", "float32", "bfloat16")[(i + j) % 3], (i + j) % 2 == 0


def _padding_cases(impl):
    for i, (batch, seq, cols, mean) in enumerate(
        ((1, 1, 1, 60), (7, 33, 8, 60), (5, 9, 7, 20), (1100, 2, 4, 70), (3, 40, 520, 100))
    ):
        for j, direction in enumerate(("pack", "unpack")):
            values = {"batch": batch, "seq": seq, "cols": cols, "mean": mean, "direction": direction}
            yield values, ("float16", "float32")[(i + j) % 2], (i + j) % 3 != 0


def _embedding_cases(impl):
    for i, (batch, seq, cols, vocab) in enumerate(
        ((1, 1, 1, 1), (2, 7, 33, 50), (3, 5, 72, 9), (1, 3, 776, 20), (1, 2, 5000, 3))
    ):
        yield (
            {"batch": batch, "seq": seq, "cols": cols, "vocab": vocab},
            ("float16", "float32", "bfloat16")[i % 3],
            True,
        )
        yield {"batch": batch, "seq": seq, "cols": cols, "vocab": vocab}, "float32", False


CASES = {
    "padding": _padding_cases,
    "embedding_layernorm": _embedding_cases,
    "bias_residual_layernorm": _layernorm_cases,
    "bias_gelu": _gelu_cases,
    "split_heads": _heads_cases,
    "linear": _linear_cases,
}


@pytest.fixture(scope="module")
def library():
    return emulator.build(KERNELS)


@pytest.fixture(scope="module")
def cublaslt(tmp_path_factory):
    """The stand-in for cuBLASLt, compiled."""
    target = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    source = Path(__file__).with_name("fake_cublaslt.cpp")
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", str(target), str(source)], check=True
    )
    return target


def _run(script, library, cublaslt, given=None, **more):
    """What the script says, as JSON; it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), str(library)],
        input=json.dumps(given),
        env=os.environ
        | {"PYTHONPATH": str(paths.IMPORT_ROOT), "EMULATED_SMS": "3", "FUSESCOPE_CUBLASLT": str(cublaslt)}
        | {k: str(v) for k, v in more.items()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(library, cublaslt):
    """{(op, impl): {case: what is wrong with it}} of all kernels, run in one process."""
    cases = [[op, impl, *case] for op, impls in KERNELS.items() for impl in impls for case in CASES[op](impl)]
    reasons = _run("emulated_layer_run.py", library, cublaslt, cases)
    answer = {}
    for case, reason in zip(cases, reasons, strict=True):
        answer.setdefault((case[0], case[1]), {})[json.dumps(case[2:])] = reason
    return answer


@pytest.mark.parametrize(("op", "impl"), [(op, impl) for op, impls in KERNELS.items() for impl in impls])
def test_layer_kernels_are_right(found, op, impl):
    own = found[op, impl]
    assert len(own) >= 6
    assert not {case: reason for case, reason in own.items() if reason}


def test_the_fastest_algorithm_is_kept_and_found_again(library, cublaslt, tmp_path):
    """The stand-in offers three algorithms, of which the second fails; times are given, the third being the
    fastest."""
    first = _run("emulated_algorithms_run.py", library, cublaslt, [3.0, 9.0, 1.0], FUSESCOPE_BUILD=tmp_path)
    assert first["known"] == [
        {"algorithms": 2, "first_ms": 3.0, "best_ms": 1.0, "place": 2, "measured": "now"}
    ]
    assert first["taken"] == {"v1_heuristic": 0, "v2_measured": 2}
    assert first["right"] and first["timed"] == 1, "the second call of the same problem measures nothing"
    again = _run("emulated_algorithms_run.py", library, cublaslt, [1.0, 1.0, 3.0], FUSESCOPE_BUILD=tmp_path)
    assert again["known"][0]["measured"] == "before" and again["timed"] == 0
    assert again["taken"] == {"v1_heuristic": 0, "v2_measured": 2}


def test_the_first_guess_stays_where_nothing_is_clearly_faster(library, cublaslt, tmp_path):
    found = _run("emulated_algorithms_run.py", library, cublaslt, [1.0, 9.0, 0.995], FUSESCOPE_BUILD=tmp_path)
    assert found["taken"]["v2_measured"] == 0 and found["known"][0]["place"] == 0


def test_a_stored_algorithm_that_fails_is_measured_anew(library, cublaslt, tmp_path):
    _run("emulated_algorithms_run.py", library, cublaslt, [3.0, 9.0, 1.0], FUSESCOPE_BUILD=tmp_path)
    (file,) = (tmp_path / "algorithms").iterdir()
    stored = json.loads(file.read_text())
    for entry in stored.values():
        entry["algorithm"][0] = 1
    file.write_text(json.dumps(stored))
    found = _run("emulated_algorithms_run.py", library, cublaslt, [3.0, 9.0, 1.0], FUSESCOPE_BUILD=tmp_path)
    assert found["known"][0]["measured"] == "now" and found["taken"]["v2_measured"] == 2
