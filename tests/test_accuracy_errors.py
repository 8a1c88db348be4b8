"""Figures of errors against plain definitions, ULPs against the spacing of the dtype itself, limits and the
first divergence."""

import math

import numpy as np
import pytest
import torch

from fusescope.analysis.accuracy import depth
from fusescope.analysis.accuracy import errors as accuracy_errors
from fusescope.analysis.accuracy.errors import errors


@pytest.fixture
def pair():
    r = np.random.default_rng(0)
    ref = r.standard_normal((7, 300)) * np.exp(r.standard_normal((7, 300)))
    return ref + 1e-3 * r.standard_normal(ref.shape), ref


def test_figures_are_what_their_names_say(pair):
    out, ref = pair
    e, d = errors(out, ref, "float32"), np.abs(out - ref)
    rms = math.sqrt((ref**2).mean())
    relative = d / np.maximum(np.abs(ref), rms * accuracy_errors.SMALL)
    assert e.count == ref.size and e.unequal == 0 and e.rms == pytest.approx(rms)
    assert (e.max_abs, e.mean_abs) == pytest.approx((d.max(), d.mean()))
    assert (e.max_rel, e.mean_rel) == pytest.approx((relative.max(), relative.mean()))
    assert e.relative_l2 == pytest.approx(np.linalg.norm(out - ref) / np.linalg.norm(ref))
    assert e.cosine == pytest.approx((out * ref).sum() / np.linalg.norm(out) / np.linalg.norm(ref))
    assert sum(e.ulps) == e.count


def test_torch_and_numpy_are_the_same_lines_and_say_the_same(pair, monkeypatch):
    monkeypatch.setattr(accuracy_errors, "_CHUNK", 100)
    out, ref = pair
    out[0, 5], ref[3, 3], out[2, 2], ref[2, 2] = np.nan, np.inf, np.nan, np.nan
    a = errors(out, ref, "float16")
    b = errors(torch.from_numpy(out), torch.from_numpy(ref), "float16", torch)
    assert a.ulps == b.ulps and a.unequal == b.unequal == 2 and a.count == ref.size - 3
    for name in ("max_abs", "mean_abs", "max_rel", "mean_rel", "relative_l2", "cosine", "rms"):
        assert getattr(a, name) == pytest.approx(getattr(b, name)), name


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_ulp_is_the_distance_to_the_next_number_of_the_dtype(dtype):
    kind = np.dtype(dtype)
    ref = np.concatenate([np.logspace(-9, 4, 400), [np.finfo(kind).smallest_subnormal * 3, 1.0, 2.0]]).astype(
        kind
    )
    away = np.nextafter(ref, kind.type(np.inf)).astype(np.float64)
    distance = accuracy_errors.ulps(np.abs(away - ref.astype(np.float64)), ref.astype(np.float64), dtype)
    assert np.array_equal(distance, np.ones(len(ref)))


def test_rounding_to_nearest_is_half_an_ulp_at_most():
    ref = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for dtype in ("bfloat16", "float16", "float32"):
        e = errors(ref.to(getattr(torch, dtype)).double(), ref, dtype, torch)
        assert sum(e.ulps[2:]) == 0 and e.ulps[1] > 4000
        assert e.max_rel <= accuracy_errors.unit_roundoff(dtype) * (1 + 1e-9)


def test_edges_of_the_bins_belong_below():
    ref = np.full(5, 1.0)
    step = 2.0**-10  # an ulp of float16 at 1
    out = ref + step * np.array([0, 0.5, 0.50001, 1, 65537])
    e = errors(out, ref, "float16")
    words = accuracy_errors.ulp_words()
    assert len(words) == len(e.ulps) and dict(zip(words, e.ulps, strict=True)) == {
        **dict.fromkeys(words, 0),
        "exact": 1,
        "≤ 0.5": 1,
        "≤ 1": 2,
        "> 65536": 1,
    }


def test_what_has_no_reference_to_be_relative_to():
    assert errors(np.ones(3), np.zeros(3), "float32").relative_l2 == math.inf
    assert errors(np.ones(3), np.zeros(3), "float32").to_json()["relative_l2"] is None
    same = errors(np.zeros(3), np.zeros(3), "float32")
    assert (same.relative_l2, same.cosine, same.max_rel, same.ulps[0]) == (0, 1, 0, 3)
    assert errors(np.zeros(0), np.zeros(0), "float32").count == 0
    with pytest.raises(ValueError, match=r"\(2,\) with \(3,\)"):
        errors(np.zeros(2), np.zeros(3), "float32")
    with pytest.raises(ValueError, match="int8"):
        errors(np.zeros(2), np.ones(2), "int8")


def _row(name, error, roundings=4, unequal=0):
    return {"name": name, "relative_l2": error, "unequal": unequal, "roundings": roundings}


def test_the_first_divergence_is_the_first_row_beyond_its_limit():
    near = depth.limit("float16", 4)
    rows = depth.with_limits(
        [_row("a", 0.5 * near), _row("b", near), _row("c", 1.01 * near), _row("d", 0.1 * near)], "float16"
    )
    assert [r["accepted"] for r in rows] == [True, True, False, True] and depth.first_divergence(rows) == 2
    assert depth.first_divergence(rows[:2]) is None
    broken = depth.with_limits([_row("a", 0.0, unequal=1), _row("b", None)], "float16")
    assert not any(r["accepted"] for r in broken)


def test_limits_grow_with_depth_and_with_the_dtype_s_roundoff():
    limit = depth.limit
    assert limit("float16", 400) == pytest.approx(2 * limit("float16", 100)) and limit("float16", 0) == limit(
        "float16", 5
    )
    assert limit("bfloat16", 50) == 8 * limit("float16", 50) and "2^-11" in depth.reason("float16")
    with pytest.raises(ValueError, match="-1"):
        limit("float16", -1)
    assert depth.against_eager(2e-3, 1e-3, "float16") and not depth.against_eager(2.1e-3, 1e-3, "float16")


def test_two_runs_diverge_where_one_errs_several_times_as_much():
    near = depth.limit("float32", 4)
    a = depth.with_limits([_row("x", 0.1 * near), _row("y", 0.2 * near), _row("z", 0.3 * near)], "float32")
    b = depth.with_limits(
        [_row("x", 0.02 * near), _row("only here", near), _row("y", near), _row("z", None)], "float32"
    )
    assert depth.first_difference(a, b) == "y" == depth.first_difference(b, a)
    assert depth.first_difference(a, a) is None
