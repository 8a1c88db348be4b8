"""On a GPU: the bar of the fused model's error, every way judged, and figures of scores that are those of the
CPU."""

import pytest

from fusescope import models
from fusescope.core.reporter import Collect
from fusescope.jobs.kinds import accuracy, scores
from fusescope.store import tables

pytestmark = pytest.mark.gpu
CASES = {
    "full": {"seq": 128, "batch": 4},
    "padded": {"seq": 128, "batch": 4, "lengths": "128+77+40+9"},
    "bigbird": {"seq": 256, "batch": 2, "mask": "bigbird"},
}


def judged(tmp_path, name, case, entries):
    spec = accuracy.validate({"model": name, "case": case, "entries": entries, "device": "cuda:0"})
    accuracy.run(spec, Collect(tmp_path / "artifacts"))
    found = tables.read(tmp_path, "accuracy")["entries"]
    assert not [(e["way"], e["reason"]) for e in found if e["reason"]]
    return {(e["way"], e["dtype"]): e["rows"] for e in found}


@pytest.mark.parametrize("case", CASES)
def test_the_fused_model_errs_at_most_twice_as_much_as_the_eager_one(tmp_path, case):
    entries = [
        [w, d] for d in ("float16", "bfloat16") for w in ("eager", "sdpa", "sdpa-graph", "fusescope", "fused")
    ]
    found = judged(tmp_path, "bert-base", CASES[case], entries)
    for (way, dtype), rows in found.items():
        bad = [(r["name"], r["relative_l2"], r["limit"]) for r in rows if not r["accepted"]]
        assert not bad, (way, dtype, bad[:3])
        if way in ("fused", "fusescope"):
            assert rows[-1]["relative_l2"] <= 2 * found["eager", dtype][-1]["relative_l2"], (way, dtype)


@pytest.mark.parametrize("name", ["vit-base", "gpt2", "llama-small", "t5-small"])
def test_every_family_is_judged_on_the_gpu(tmp_path, name):
    case = {"layers": 2} if name == "vit-base" else {"layers": 2, "seq": 96}
    ways = [
        w.name
        for w in models.modes(name, "cuda:0")
        if w.reason is None and w.name in ("eager", "sdpa", "fusescope", "fused")
    ]
    dtypes = (
        ("float16",) if name == "vit-base" else ("float32", "float16")
    )  # cuDNN convolves float32 patches in TF32 unless told not to
    for key, rows in judged(tmp_path, name, case, [[w, d] for w in ways for d in dtypes]).items():
        bad = [(r["name"], r["relative_l2"], r["limit"]) for r in rows if not r["accepted"]]
        assert not bad, (key, bad[:3])


def test_scores_are_counted_as_on_the_cpu(tmp_path):
    found = []
    for device in ("cpu", "cuda:0"):
        spec = scores.validate(
            {
                "model": "bert-small",
                "case": {"seq": 96, "batch": 2, "lengths": "96+31"},
                "device": device,
                "tile": 16,
            }
        )
        scores.run(spec, Collect(tmp_path / device / "artifacts"))
        found.append(tables.read(tmp_path / device, "scores"))
    for a, b in zip(*(f["layers"] for f in found), strict=True):
        for x, y in zip(a["heads"], b["heads"], strict=True):
            assert x["live"] == y["live"] and x["entropy"] == pytest.approx(y["entropy"], rel=1e-4)
            assert x["below"] == pytest.approx(y["below"], abs=3), (
                "an element on the threshold may fall to either side"
            )
            assert [s["tiles"] for s in x["skip"]] == [s["tiles"] for s in y["skip"]]
