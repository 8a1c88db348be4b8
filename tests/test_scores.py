"""Figures of attention probabilities against brute force, tiles that are skipped against an attention that
does not see them."""

import base64
import itertools
import math

import numpy as np
import pytest
import torch

from fusescope.analysis import scores


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(params=[(5, 7), (33, 70), (1, 1), (64, 64)])
def case(request):
    """(logits, probabilities, values, live) of two heads; the last query sees nothing where there are
    several."""
    r = np.random.default_rng(1)
    s_q, s_k = request.param
    live = r.random((s_q, s_k)) < 0.7
    live[:, 0] = True
    if s_q > 1:
        live[-1] = False
    logits = np.where(live, 6 * r.standard_normal((2, s_q, s_k)), -1e9)
    return logits, softmax(logits) * live, r.standard_normal((2, s_k, 4)), live


def test_counts_histogram_and_entropy_by_brute_force(case):
    _, p, _, live = case
    found, bars, bits = scores.counts(p, live), scores.histogram(p, live), scores.entropy(p, live)
    for h in range(2):
        values = [p[h, i, j] for i, j in itertools.product(*map(range, live.shape)) if live[i, j]]
        assert found["live"][h] == len(values) and found["zeros"][h] == values.count(0)
        assert found["below"][h] == [sum(v < t for v in values) for t in scores.THRESHOLDS]
        assert sum(bars[h]) == len(values) - values.count(0)
        for a, b, n in zip(scores.BINS, scores.BINS[1:], bars[h], strict=False):
            first, last = a == scores.BINS[0], b == 0
            assert n == sum(
                (first or math.log10(v) >= a) and (last or math.log10(v) < b) for v in values if v > 0
            )
        rows = [-sum(v * math.log2(v) for v in p[h, i] if v > 0) for i in range(len(live)) if live[i].any()]
        assert bits[h] == pytest.approx(sum(rows) / len(rows)) and bits[h] <= scores.most_bits(live) + 1e-9
    assert scores.most_bits(np.zeros((2, 2), bool)) == 0


def test_torch_says_the_same(case):
    _, p, v, live = case
    given = [torch.from_numpy(x) for x in (p, v, live)]
    for name in ("counts", "histogram"):
        assert getattr(scores, name)(p, live) == getattr(scores, name)(given[0], given[2], torch)
    assert scores.entropy(p, live) == pytest.approx(scores.entropy(given[0], given[2], torch))
    a, b = scores.skippable(p, v, live, 16), scores.skippable(*given, 16, torch)
    for x, y in zip(itertools.chain(*a), itertools.chain(*b), strict=True):
        assert {k: x[k] for k in ("tiles", "skipped", "lost")} == {
            k: y[k] for k in ("tiles", "skipped", "lost")
        }
        assert x["error"] == pytest.approx(y["error"], abs=1e-12)
    assert np.allclose(scores.heat(p)[0], scores.heat(given[0], torch)[0])


@pytest.mark.parametrize("tile", [16, 32])
def test_the_error_is_that_of_an_attention_without_the_skipped_tiles(case, tile):
    logits, p, v, live = case
    for h, entries in enumerate(scores.skippable(p, v, live, tile)):
        for t, entry in zip(scores.THRESHOLDS, entries, strict=True):
            left, tiles, skipped = live.copy(), 0, 0
            for i, j in itertools.product(range(0, live.shape[0], tile), range(0, live.shape[1], tile)):
                part = np.s_[i : i + tile, j : j + tile]
                tiles += live[part].any()
                if live[part].any() and p[h][part].max() < t:
                    skipped += 1
                    left[part] = False
            seen = left.any(-1)
            without = np.where(seen[:, None], softmax(np.where(left, logits[h], -1e9)) * left, 0)
            out = p[h] @ v[h]
            assert (entry["tiles"], entry["skipped"], entry["lost"]) == (
                tiles,
                skipped,
                int((~seen & live.any(-1)).sum()),
            )
            assert entry["error"] == pytest.approx(
                np.linalg.norm(without @ v[h] - out) / np.linalg.norm(out), abs=1e-7
            )


def test_a_heat_map_s_pixel_is_a_mean(case):
    p = case[1]
    picture, side = scores.heat(p, pixels=6)
    for i, j in itertools.product(range(len(picture[0])), range(len(picture[0][0]))):
        assert picture[1][i][j] == pytest.approx(
            p[1, i * side : (i + 1) * side, j * side : (j + 1) * side].mean()
        )
    assert max(len(picture[0]), len(picture[0][0])) <= 6


def test_padding_wastes_tokens_and_more_of_the_scores():
    assert scores.padding([4, 2], 4) == {"tokens": pytest.approx(0.25), "scores": pytest.approx(1 - 20 / 32)}
    assert scores.padding([8], 8) == {"tokens": 0, "scores": 0}
    for bad in ([0, 3], [5, 9], []):
        with pytest.raises(ValueError, match="from 1 to 8"):
            scores.padding(bad, 8)


def test_a_packed_picture_keeps_the_logarithm():
    from fusescope.models.scores.job import packed

    values = np.array(list(base64.b64decode(packed([[0.0, 1.0, 1e-12, 1e-30, 1e-6]]))), float)
    assert list(values) == [0, 255, 1, 1, 128]
