"""``import fusescope``: the public names, loaded when used, and bench() in the caller's process."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

import fusescope
from fusescope import masks
from fusescope.core.records import DTYPES

FACE = {
    "attention",
    "attention_varlen",
    "attention_decode",
    "attention_fp8",
    "quantise_fp8",
    "prepare",
    "masks",
    "register_attention",
    "bench",
    "generate",
    "KVCache",
    "Score",
    "compile_score",
}


def mine(x):
    return x.softmax(-1)


def wrong(x):
    return x


@pytest.fixture
def softmax(monkeypatch):
    """bench("softmax", …) on a device of absurd speed, so that no ceiling fails a time by chance."""
    from fusescope.measure.device import ceilings

    peak = dict.fromkeys(DTYPES, 1e9)
    figures = {
        "copy_gbps": 1e9,
        "read_gbps": 1e9,
        "l2_gbps": 1e9,
        "matrix_tflops": peak,
        "vector_tflops": peak,
    }
    monkeypatch.setattr(ceilings, "measure", lambda device, dtypes, refresh=False: dict(figures))
    return lambda *words, **values: fusescope.bench("softmax", *words, device="cpu", budget_s=0.05, **values)


def test_the_face_is_complete_and_documented():
    assert set(fusescope.__all__) == FACE | {"__version__"} == set(dir(fusescope))
    for name in FACE:
        assert getattr(fusescope, name).__doc__, name
        assert name in fusescope.__doc__
    with pytest.raises(AttributeError, match="no attribute 'atention'"):
        getattr(fusescope, "atention")  # noqa: B009


def test_importing_imports_neither_torch_nor_numpy():
    code = "import sys, fusescope; sys.exit(bool({'torch', 'numpy', 'plotly'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_bench_measures_functions_beside_named_implementations(softmax):
    said = []
    records = softmax(["eager", mine, wrong], rows=8, cols=[16, 32], log=said.append)
    found = {(r.impl, r.case["cols"]): r for r in records}
    assert len(found) == 6 and "done" in said
    assert (
        found["mine", 16].ms > 0 and found["mine", 32].speedup.of == "eager" and found["mine", 16].source_hash
    )
    assert found["wrong", 16].status == "wrong" and found["wrong", 16].ms is None


def test_bench_takes_one_function_dtypes_of_torch_and_partial_cases(softmax):
    import torch

    records = softmax(mine, [{"rows": 4, "cols": 8}], dtype=torch.bfloat16)
    assert [r.impl for r in records] == ["eager", "mine"]
    assert {r.dtype for r in records} == {"bfloat16"}


@pytest.mark.slow
def test_the_baseline_may_be_a_function_and_functions_may_be_objects(softmax):
    import functools

    import torch

    own = softmax([functools.partial(torch.softmax, dim=-1), mine], rows=8, cols=16, baseline=mine)
    assert [r.impl for r in own] == ["softmax", "mine"] and own[0].speedup and own[1].ms
    with_named = softmax(["cpu", torch.nn.Softmax(-1)], rows=8, cols=16, baseline=mine)
    assert {r.impl for r in with_named} == {"cpu", "Softmax", "mine"}
    bad = softmax([mine], rows=8, cols=16, baseline=wrong)
    assert {r.impl: r.status for r in bad} == {"mine": "ok", "wrong": "wrong"}
    assert not any(r.speedup for r in bad), "there is nothing right to compare with"


def test_bench_refuses_by_name(softmax):
    for words, values, said in (
        (["v0_nothing"], {}, "v0_nothing"),
        (["eager"], {"rows": 0}, "rows"),
        (["eager"], {"dtype": "int8"}, "int8"),
        (["eager"], {"colour": 3}, "colour"),
    ):
        with pytest.raises(ValueError, match=said):
            softmax(words, **values)

    def eager(x):
        return x

    with pytest.raises(ValueError, match="__name__"):
        softmax([eager])
    with pytest.raises(ValueError, match="two functions are called <lambda>"):
        softmax([lambda x: x, lambda x: x + 0])
    for no_list in (None, 3, ["eager", 3]):
        with pytest.raises(TypeError, match="is a name or a function, not"):
            softmax(no_list)
    for device in ("cuda:99", 99, 0, ""):
        with pytest.raises(ValueError, match=f"no device '{device}'"):
            fusescope.bench("softmax", device=device)

    def auto(x):
        return x

    with pytest.raises(ValueError, match="its own auto"):
        softmax([auto])
    with pytest.raises(ValueError, match="at least one implementation"):
        softmax([])


def test_bench_measures_the_cases_that_are_given_and_no_others(softmax):
    records = softmax("eager", [{"rows": 4}, {"rows": 8, "cols": 16}], cols=[32, 64])
    assert [(r.case["rows"], r.case["cols"]) for r in records] == [(4, 32), (4, 64), (8, 16)]
    with pytest.raises(ValueError, match="one or more"):
        softmax("eager", [])
    for no_cases in ({"rows": 4}, [("rows", 4)]):
        with pytest.raises(TypeError, match="a list of dictionaries"):
            softmax("eager", no_cases)


@pytest.mark.slow
def test_bench_says_that_it_waits_for_the_device(softmax, monkeypatch):
    from fusescope.jobs import in_process

    class Ticket:
        warning = None

        def __init__(self, lock, who):
            self.places = iter((2, 1, 0))

        def advance(self):
            return next(self.places)

        def close(self):
            pass

    monkeypatch.setattr(in_process, "Ticket", Ticket)
    with pytest.warns(UserWarning, match="fusescope.bench is queued on the device, 2 ahead") as found:
        softmax("eager", rows=4, cols=8)
    assert [w.filename for w in found if "queued" in str(w.message)] == [__file__]
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        softmax("eager", rows=4, cols=8, log=said.append)
    assert sum("queued on the device" in text for text in said) == 2


def test_a_mask_may_be_an_object():
    """Only checked up to the case: the text of a mask is what a record holds."""
    with pytest.raises(ValueError, match="head_dim"):
        fusescope.bench("attention", mask=masks.load("causal"), head_dim=33, device="cpu")
    array = masks.from_dense([[True]])
    with pytest.raises(ValueError, match="numpy"):
        fusescope.bench("attention", mask=array, device="cpu")
