"""Every job kind: complete, found by name, and able to say what a run did."""

import pytest

from fusescope.core.records import Run
from fusescope.jobs import kinds

SPECS = {
    "bench": (
        {"op": "add", "impls": ["v1", "v2"], "cases": [{"n": 8}, {"n": 9}]},
        "add, 2 implementations, n 8 and 9",
    ),
    "model": ({"op": "model:gpt2", "impls": ["sdpa"], "cases": [{"seq": 8}]}, "gpt2, 1 mode, seq 8"),
    "build": ({"families": ["add"], "archs": ["sm_80"]}, "build of add for sm_80"),
    "trace": ({"op": "add", "impl": "/a/b/mine.py:add"}, "trace of add mine.py:add"),
    "import": ({"file": "/a/b/trace.json"}, "import of trace.json"),
    "search": (
        {"batch": 1, "seq": 8, "mask": "full", "dtype": "float32"},
        "search of batch 1, seq 8, full, float32",
    ),
}


@pytest.mark.parametrize("kind", kinds.names())
def test_a_kind_names_its_runs(kind):
    assert isinstance(kinds.load(kind).name({}), str)
    spec, name = SPECS.get(kind, ({}, None))
    assert name is None or kinds.name(Run("id", kind, spec, "done")) == name
    assert kinds.name(Run("id", kind, spec, "done", title="mine")) == "mine"


def test_whole_numbers_in_a_name_have_their_digits_in_groups():
    """ "rows 4096" stood over tables with "4,096"."""
    of_cases = lambda *cases: kinds.load("bench").name({"op": "add", "impls": ["v1"], "cases": cases})  # noqa: E731
    assert of_cases({"rows": 4096, "cols": 768}) == "add, 1 implementation, rows 4,096, cols 768"
    assert of_cases({"n": 512}, {"n": 1024}, {"n": 4096}) == "add, 1 implementation, n 512 to 4,096"
    assert kinds.load("search").name({"batch": 1, "seq": 2048}).startswith("search of batch 1, seq 2,048")


@pytest.mark.parametrize(
    "impls, says",
    [
        (["/a/b/mine.py:fast", "eager"], "softmax, mine.py:fast and 1 other, rows 8, cols 9, float32"),
        (["/a/x.py:f", "/a/y.py:g"], "softmax, x.py:f, y.py:g, rows 8, cols 9, float32"),
    ],
)
def test_a_comparison_of_a_user_s_own_names_it(impls, says):
    """Two comparisons of a function looked like any two of the operator in the list of runs."""
    spec = {"op": "softmax", "impls": impls, "cases": [{"rows": 8, "cols": 9}], "dtype": "float32"}
    assert kinds.load("bench").name(spec) == says


def test_a_model_by_its_config_is_called_by_its_file():
    """The whole path filled the list of runs, and what was measured was cut."""
    spec = {"op": "model:/a/b/configs/mine-1a2b3c4d.json", "impls": ["eager"], "dtype": "float32"}
    assert kinds.load("model").name(spec) == "mine-1a2b3c4d.json, 1 mode, float32"


def test_a_run_of_an_unknown_kind_is_called_after_it():
    assert kinds.name(Run("id", "dance", {}, "done")) == "dance"
