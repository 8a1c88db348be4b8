"""A model that cannot fit is refused by its sizes before anything is allocated."""

import pytest

from fusescope import models
from fusescope.core.machine import environment
from fusescope.jobs import submit
from fusescope.models.describe import memory

GIB = 2**30
H200, RTX = ({"memory_bytes": n * GIB} for n in (139, 24))


def spec(device="cpu", dtype="bfloat16", **more):
    return {
        "op": "model:llama3-8b",
        "impls": ["eager"],
        "cases": [{}],
        "device": device,
        "dtype": dtype,
    } | more


@pytest.mark.parametrize(
    ("dtype", "sizes"), [("bfloat16", "15 GiB in bfloat16"), ("float32", "29.9 GiB in float32")]
)
def test_a_model_too_large_is_refused_with_the_sizes(monkeypatch, dtype, sizes):
    monkeypatch.setattr(memory, "_available", lambda: 20 * GIB)
    with pytest.raises(ValueError, match=r"20 GiB of .* GiB are available") as refused:
        submit.validate("model", spec(dtype=dtype))
    assert sizes in str(refused.value) and "59.8 GiB in the float64 reference" in str(refused.value)
    with pytest.raises(ValueError, match="does not fit on cpu"):
        entries = [["eager", dtype]]
        submit.validate("accuracy", {"model": "llama3-8b", "case": {}, "entries": entries, "device": "cpu"})


@pytest.mark.parametrize(("gpu", "fits"), [(H200, True), (RTX, False), ({"memory_bytes": None}, True)])
def test_a_gpu_counts_with_all_its_memory(monkeypatch, gpu, fits):
    monkeypatch.setattr(environment, "gpu_of", lambda device: gpu)
    case = models.validate("llama3-8b", {})
    if fits:
        return models.check_memory("llama3-8b", case, "bfloat16", "cuda:0")
    with pytest.raises(ValueError, match="it has 24 GiB"):
        models.check_memory("llama3-8b", case, "bfloat16", "cuda:0")


def test_nothing_is_refused_where_the_size_is_unknown(monkeypatch):
    monkeypatch.setattr(memory, "_available", lambda: None)
    models.check_memory("llama3-8b", models.validate("llama3-8b", {}), "bfloat16", "cpu")


def test_what_is_available_lies_within_the_machine():
    free = memory._available()
    assert free is None or 0 < free <= environment.collect("cpu")["memory_bytes"]
