"""A user's file.py:function is refused before anything is submitted where the function is not there; the file
is not run for that."""

import dataclasses
import os
import sys

import pytest

from fusescope import ops
from fusescope.analysis import estimate
from fusescope.core.records import BenchSpec
from fusescope.jobs import submit
from fusescope.ops.common import user


def write(tmp_path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text("raise SystemExit('it was run')\n" + text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        "def fast(x): return x",
        "async def fast(x): return x",
        "class fast: ...",
        "fast = lambda x: x",
        "from elsewhere import fast",
        "from elsewhere import slow as fast",
        "from elsewhere import *",
        "def __getattr__(name): return print",
        "if True:\n    try:\n        import fast\n    except ImportError:\n        pass",
        "slow, (fast, other) = 1, (2, 3)",
        "if (fast := print): pass",
    ],
)
def test_a_name_that_the_module_binds_is_taken_without_running_it(tmp_path, text):
    found = ops.describe("add", f"{write(tmp_path, text)}:fast")
    assert found.kind == "user" and found.idea == "fast of mine.py" and len(found.source_hash) == 16


@pytest.mark.parametrize(
    "text,has",
    [
        ("def slow(x): return x\ndef other(x): return x", "it has other, slow"),
        ("def slow():\n    def fast(x): return x", "it has slow"),
        ("class Kernels:\n    def fast(self, x): return x", "it has none"),
        ("print(fast)", "it has none"),
    ],
)
def test_a_function_that_is_not_there_is_refused_with_those_that_are(tmp_path, text, has):
    with pytest.raises(ValueError, match=rf"mine\.py has no function 'fast'; {has}"):
        ops.describe("add", f"{write(tmp_path, text)}:fast")


@pytest.mark.parametrize("text", ["def fast(x) return x", "\0"])
def test_a_file_that_does_not_parse_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"mine\.py is no Python: "):
        ops.describe("add", f"{write(tmp_path, text)}:fast")


def test_it_is_refused_before_submission(tmp_path):
    impl = f"{write(tmp_path, 'def slow(a, b): return a')}:fast"
    spec = {
        "op": "add",
        "impls": [impl],
        "cases": [{"n": 10}],
        "baseline": "eager",
        "dtype": "float32",
        "device": "cpu",
    }
    with pytest.raises(ValueError, match="has no function 'fast'"):
        submit.validate("bench", spec)


def test_an_edit_of_the_same_size_within_the_second_is_the_function_that_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for number in (1, 2):
        file.write_text(f"def fast(): return {number}")
        os.utime(file, (1e9, 1e9))
        assert user.function(f"{file}:fast")() == number
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_compiling_peers_are_counted_once_each_and_by_device():
    assert ops.compile_seconds("gemm", ("cpu", "eager", "eager"), "cpu") == 0
    once = ops.compile_seconds("gemm", ("compile",), "cuda:1")
    assert ops.compile_seconds("gemm", ("compile", "compile", "eager"), "cuda:0") == once > 0
    assert ops.compile_seconds("gemm", ("compile", "autotune"), "cuda:0") > once
    assert (
        ops.compile_seconds("attention", ("flex",), "cpu")
        > ops.compile_seconds("attention", ("flex",), "cuda")
        > 0
    )
    spec = BenchSpec("gemm", ("compile",), ({"m": 8}, {"m": 16}), "eager", device="cuda:0")
    plain = estimate.Facts("a GPU", [(1e9, 1e6, 1e9)] * 2)
    compiled = dataclasses.replace(plain, compile_s={"compile": once})
    assert estimate.seconds(spec, compiled, {}) >= estimate.seconds(spec, plain, {}) + 2 * once


def test_the_functions_of_a_file_are_listed_without_running_it(tmp_path):
    text = (
        "import triton\n@triton.jit\ndef kernel(out, x, N): ...\n"
        "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef tuned(out, x): ...\n"
        "def _inner(x): ...\nasync def later(x): ...\nclass Kernels:\n    def method(self): ...\n"
        "@torch.compile(dynamic=False)\ndef fast(x, weight, eps=1e-5, *, out=None): ...\n"
        "def any_of(*args): ...\n"
    )
    found = user.functions(write(tmp_path, text))
    assert [str(f) for f in found] == ["fast(x, weight, eps)", "any_of(*args)"]
    assert (found[0].required, found[0].more, found[1].more) == (2, False, True)
    with pytest.raises(ValueError, match="defines no function"):
        user.functions(write(tmp_path, "def _inner(x): ..."))
    with pytest.raises(ValueError, match=r"no file .*gone\.py"):
        user.functions(str(tmp_path / "gone.py"))


class _Plan:
    def __init__(self, is_full):
        self.is_full = is_full


LIVE, MASKED = _Plan(True), _Plan(False)


@pytest.mark.parametrize(
    ("function", "args", "count"),
    [
        (lambda q, k, v: 0, ("q", "k", "v", LIVE), 3),
        (lambda q, k, v, plan: 0, ("q", "k", "v", MASKED), 4),
        (lambda q, k, v, p: 0, ("q", "k", "v", LIVE), 4),
        (lambda q, k, v, plan=None: 0, ("q", "k", "v", LIVE), 4),
        (lambda q, k, v, scale=None: 0, ("q", "k", "v", LIVE), 3),
        (lambda x, weight, bias: 0, ("x", "w", "b", 1e-5), 3),
        (lambda x, weight, bias: 0, ("x", "w", "b", None, None), 3),
        (lambda *args: 0, ("q", "k", "v", LIVE), 4),
        (max, ("q", "k"), 2),  # has no signature
    ],
)
def test_a_function_is_given_what_it_has_parameters_for(function, args, count):
    assert user.taken(function, args) == args[:count]


@pytest.mark.parametrize(
    ("args", "left_out"),
    [((1, 2, 3, MASKED), "the plan, whose mask hides keys"), ((1, 2, 3, object()), "a tensor")],
)
def test_no_tensor_and_no_mask_is_left_out(args, left_out):
    with pytest.raises(TypeError, match=f"takes 3 of 4 arguments and leaves out {left_out}"):
        user.taken(lambda q, k, v: 0, args)


def test_attention_of_three_parameters_is_correct_and_refused_where_a_mask_hides_keys(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\ndef mine(q, k, v):\n"
        "    return torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
    )
    module = ops.load("attention")
    sizes = {"seq": 33, "heads": 2, "head_dim": 32}
    inputs = module.inputs(module.validate(sizes), "float32", "cpu", 0)
    error = ops.make("attention", f"{path}:mine", inputs)().double() - module.reference(inputs)
    assert error.abs().max() < 1e-5
    inputs = module.inputs(module.validate(sizes | {"mask": "causal"}), "float32", "cpu", 0)
    with pytest.raises(TypeError, match="mine takes 3 of 4 arguments and leaves out the plan"):
        ops.make("attention", f"{path}:mine", inputs)
