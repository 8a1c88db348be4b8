"""What is learned from pairs: segment costs, the cost model, its files."""

import json

import numpy as np
import pytest
from landscape import landscape, some

from fusescope.search import encoding
from fusescope.search.learning import boosted, cost_model, features, pairs
from fusescope.search.learning.additive import Additive

pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def truth():
    return some(1, 900)


@pytest.fixture(scope="module")
def learned(truth):
    return cost_model.train(dict(list(truth.items())[:300]), context={"batch": 1})


def test_held_out_codes_are_ranked(truth, learned):
    held = list(truth)[300:]
    found, measured = learned.predict(held), [truth[c] for c in held]
    assert [p.code for p in found] == held and learned.pairs == 300
    assert cost_model.rank_correlation([p.ms for p in found], measured) >= 0.9
    assert cost_model.rank_correlation(learned.trees.log_ms(held), measured) >= 0.85, "the trees alone"
    inside = np.mean([p.low <= m <= p.high for p, m in zip(found, measured)])
    assert 0.88 <= inside <= 1 and all(p.low < p.ms < p.high for p in found)


def test_validation_is_of_codes_held_out(truth, learned):
    v = learned.validation
    assert v["rank_correlation"] >= 0.9 and v["error_percent"] < 3 and 0.88 <= v["coverage"] <= 1
    assert [p["measured_ms"] for p in v["points"]] == pytest.approx([truth[p["code"]] for p in v["points"]])
    by_points = np.sqrt(np.mean([(p["measured_ms"] - p["predicted_ms"]) ** 2 for p in v["points"]]))
    assert len(v["points"]) == 300 and by_points == pytest.approx(v["rmse_ms"])
    shuffled = dict(zip(truth, np.random.default_rng(0).permutation(list(truth.values())[:120]).tolist()))
    assert abs(cost_model.train(shuffled).validation["rank_correlation"]) < 0.4, (
        "nothing is there to be learned"
    )


def test_high_and_low_move_with_the_threshold(learned):
    codes = list(encoding.schemes(True))
    found = learned.predict(codes)
    assert {p.performance for p in found} == {0, 1}
    assert all(
        (p.performance == 1) == (p.ms <= learned.threshold_ms) == (p.probability >= 0.5) for p in found
    )
    assert all(p.performance == 1 and p.probability > 0.99 for p in learned.predict(codes, threshold_ms=10.0))
    assert not any(p.performance for p in learned.predict(codes, threshold_ms=1e-3))


def test_importance_adds_up_and_names_features(learned):
    assert sum(i["share"] for i in learned.importance) == pytest.approx(1)
    assert all(i["feature"] in features.NAMES for i in learned.importance)


def test_a_saved_cost_model_predicts_the_same(learned, tmp_path):
    file = tmp_path / "cost_model.json"
    learned.save(file)
    again = cost_model.load(file)
    codes = list(encoding.schemes(True))
    assert again.predict(codes) == learned.predict(codes)
    assert again.context == {"batch": 1} and again.validation == learned.validation
    data = json.loads(file.read_text())
    assert data["format"] == "fusescope surrogate"
    for change, says in (
        ({"format": "pickle"}, "another one"),
        ({"version": 99}, "newer version"),
        ({"pairs": {"x": 1}}, "a code is exactly 16 characters"),
        ({"version": 1}, "older version"),
        ({"prior": [0.1, 0.0]}, "above 0"),
        ({"trees": data["trees"] | {"features": ["a"]}}, "other features"),
        ({"trees": data["trees"] | {"booster": {"learner": 1}}}, "no cost model that can be read"),
        ({"threshold_ms": "x"}, "no cost model that can be read"),
    ):
        file.write_text(json.dumps(data | change))
        with pytest.raises(ValueError, match=says):
            cost_model.load(file)
    file.write_text(json.dumps(data | {"trees": None}))
    assert cost_model.saved_pairs(file.read_text(), "a file") == (learned.known, {"batch": 1}), (
        "no tree is looked at"
    )
    with pytest.raises(ValueError, match="a file is no cost model that can be read"):
        cost_model.saved_pairs('{"pairs": {}}', "a file")
    file.write_bytes(b"\x80\x04}")
    with pytest.raises(ValueError, match="no cost model that can be read"):
        cost_model.load(file)


def test_equivalent_codes_have_one_prediction(learned):
    code = "1011111010010110"
    one, other, canonical = learned.predict([code, encoding.complement(code), encoding.canonical(code)])
    assert one == other == canonical and one.code == encoding.canonical(code)


@pytest.mark.slow
def test_predict_from_a_file(truth, learned, tmp_path):
    text, model = tmp_path / "pairs.txt", tmp_path / "model.json"
    text.write_text("# of a sweep\n\n" + pairs.text(dict(list(truth.items())[:60])))
    learned.save(model)
    code = next(iter(truth))
    for file, count in ((text, 60), (model, 300)):
        found = cost_model.predict(encoding.complement(code), file)
        assert (
            found["code"] == code
            and found["pairs"] == count
            and found["class"] == ("High" if found["performance"] else "Low")
        )
        assert (
            found["measured_ms"] == pytest.approx(truth[code], rel=1e-5)
            and "points" not in found["validation"]
        )
    assert cost_model.predict(code, text, threshold_ms=9.0)["performance"] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0101010101010101\t1.5\n0101\t2", "line 2: a code is exactly 16 characters"),
        ("0101010101010101 1.5 2", "line 1: 3 words instead of 2"),
        ("0101010101010101 -1", "above 0 and finite, not -1"),
        ("0101010101010101 nan", "above 0 and finite, not nan"),
        ("21845 fast", "could not convert"),
        ("# nothing\n", "holds no pair"),
    ],
)
def test_what_is_no_pair(text, says):
    with pytest.raises(ValueError, match=says):
        pairs.parse(text)


def test_pairs_of_one_scheme_are_one():
    code = "0101110101010101"
    found = pairs.parse(f"{code}\t1\n{encoding.complement(code)}\t3\n{encoding.value(code)} 2\n")
    assert found == {code: 2.0}
    assert pairs.parse(pairs.text(found)) == found


def test_bad_training():
    with pytest.raises(ValueError, match="at least 20 distinct schemes, not from 1"):
        cost_model.train({"0101010101010101": 1.0, encoding.complement("0101010101010101"): 2.0})
    with pytest.raises(ValueError, match="milliseconds above 0"):
        cost_model.train(dict.fromkeys(encoding.schemes(True), 0.0))
    good = landscape(0, 0.01, list(encoding.schemes(True)))
    with pytest.raises(ValueError, match="threshold"):
        cost_model.train(good, threshold_ms=-1)
    with pytest.raises(ValueError, match="folds"):
        cost_model.train(good, folds=1)


def test_segment_costs_know_how_sure_they_are(truth):
    codes = list(truth)
    sums = Additive({c: truth[c] for c in codes[:200]})
    ms, deviation = sums.predict(codes[200:])
    measured = np.array([truth[c] for c in codes[200:]])
    assert cost_model.rank_correlation(ms, measured) >= 0.9
    assert 0.7 < np.std((ms - measured) / np.hypot(deviation, sums.scale * sums.prior[1])) < 2
    few = Additive({c: truth[c] for c in codes[:12]})
    assert few.predict(codes[200:])[1].mean() > 2 * deviation.mean()


def test_features_are_of_the_scheme():
    rows = features.matrix(["0101010101010101", "1010000001010101", encoding.complement("1010000001010101")])
    named = [dict(zip(features.NAMES, row)) for row in rows]
    assert named[0]["segments"] == 15 and named[0]["cut 3|4"] == 1 and named[0]["part 2-7"] == 0
    assert (
        named[1]["hand-written attention"] == 1 and named[1]["segments"] == 10 and (rows[1] == rows[2]).all()
    )
    assert len({tuple(r) for r in features.matrix(list(encoding.schemes(True)))}) == 128


def test_trees_are_repeatable(truth):
    known = dict(list(truth.items())[:50])
    one, other = (boosted.train(known, 3).log_ms(list(known)) for _ in range(2))
    assert (one == other).all()


@pytest.mark.slow
def test_rank_correlation_is_spearmans():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 50), rng.integers(0, 9, 50)
    assert cost_model.rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert cost_model.rank_correlation([1, 1], [1, 2]) == 0
