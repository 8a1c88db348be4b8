"""The benchmark job: bad requests get one sentence before any process starts; a good one leaves records and
progress."""

import sys

import pytest
from jobs_tools import until

from fusescope.jobs import submit
from fusescope.store import folder, library

GOOD = {"op": "add", "impls": ["eager"], "cases": [{"n": 4096}], "budget_s": 0.3, "min_s": 0.02}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"op": "subtract"}, "unknown operator 'subtract'; known: add"),
        ({"op": None}, "a benchmark needs op"),
        ({"impls": ["v9"]}, "add has no implementation 'v9'; it has .*eager"),
        ({"impls": ["nowhere.py:f"]}, "no file nowhere.py"),
        ({"impls": ["eager", "eager"]}, "one or more implementations, each once"),
        ({"impls": "eager"}, "impls must be a list of names"),
        ({"impls": [7]}, "impls must be a list of names"),
        ({"baseline": "cublas"}, "no implementation 'cublas'"),
        ({"cases": [{"m": 3}]}, "add takes n, not m"),
        ({"cases": [{"n": 0}]}, "n must be an integer from 1 to"),
        ({"cases": [3]}, "cases must be a list of one or more objects"),
        ({"cases": []}, "cases must be a list of one or more objects"),
        ({"dtype": "float8"}, "add takes float32, float16, bfloat16, not 'float8'"),
        ({"dtype": ["float32"]}, "dtype must be a text"),
        ({"device": "cuda:99"}, "no device 'cuda:99' here; there is .*cpu"),
        ({"device": "tpu"}, "no device 'tpu' here"),
        ({"cache": "hot"}, "cache must be warm, cold or both"),
        ({"precision": 0}, "precision must be a number above 0"),
        ({"budget_s": float("inf")}, "budget_s must be a number above 0"),
        ({"min_samples": 0.5}, "min_samples must be an integer"),
        ({"seed": -1}, "seed must be an integer from 0 to 9,007,199,254,740,991"),
        ({"colour": "red"}, "not colour"),
    ],
)
def test_bad_requests_get_one_sentence(home, change, says):
    with pytest.raises((ValueError, TypeError), match=says) as caught:
        submit.submit("bench", GOOD | change)
    assert "\n" not in str(caught.value)
    assert not home.exists()


def test_a_mask_that_does_not_exist_is_said(home):
    with pytest.raises(ValueError, match=r"unknown mask 'zebra'|no mask"):
        submit.validate("bench", GOOD | {"op": "attention", "cases": [{"mask": "zebra", "seq": 64}]})


def test_validating_completes_the_spec_without_torch(home):
    spec = submit.validate("bench", GOOD | {"impls": ["cpu"], "baseline": "eager"})
    assert spec["impls"] == ["cpu", "eager"] and spec["cache"] == "both" and spec["device"] == "cpu"
    assert submit.validate("bench", spec) == spec
    code = (
        f"from fusescope.jobs import submit; submit.validate('bench', {GOOD!r}); import sys; "
        "assert 'torch' not in sys.modules"
    )
    import subprocess

    from fusescope.core import paths

    done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_benchmark_goes_on_after_an_implementation_that_crashes(home, tmp_path):
    bad = tmp_path / "mine.py"
    bad.write_text(
        "import ctypes\ndef add(a, b):\n    ctypes.string_at(0)\n\ndef fine(a, b):\n    return a + b\n"
    )
    run_id = submit.submit("bench", GOOD | {"impls": [f"{bad}:add", f"{bad}:fine"], "baseline": "eager"})
    path = library.find(run_id)
    until(lambda: folder.read(path).progress.total, "progress over the cases")
    run = submit.wait(run_id, 120)
    assert run.status == "done", run.reason
    assert run.environment["device_name"] and {s["mode"] for s in folder.samples(path)} >= {"eager"}
    by_impl = {r.impl.rpartition(":")[2]: r for r in folder.records(path)}
    assert by_impl["add"].status == "crashed" and "SIGSEGV" in by_impl["add"].reason
    assert by_impl["fine"].status == "ok" and by_impl["eager"].status == "ok"
