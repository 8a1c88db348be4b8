"""XGBoost over features of a scheme: a small ensemble, each member trained on a bootstrap sample of the pairs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence

import numpy as np

from backend.search import features

MEMBERS = 4
_FEW = 2000  # pairs: below, a second thread waits more than it works, and on a busy machine many times more
_ROUNDS = 150
_PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_depth": 4,
    "eta": 0.12,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "min_child_weight": 2.0,
    "lambda": 1.0,
    "verbosity": 0,
}


class Boosted:
    """``log_ms`` of codes, as mean and deviation over the members."""

    def __init__(self, boosters: list, offset: float, scale: float):
        self.boosters, self.offset, self.scale = boosters, offset, scale

    def log_ms(self, codes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        xgboost = package()
        x = xgboost.DMatrix(features.matrix(codes))
        found = np.stack([b.predict(x) for b in self.boosters]).astype(float)
        return self.offset + self.scale * found.mean(0), self.scale * found.std(0)

    def importance(self) -> list[dict]:
        total: dict[str, float] = {}
        for b in self.boosters:
            for name, gain in b.get_score(importance_type="total_gain").items():
                feature = features.NAMES[int(name[1:])]
                total[feature] = total.get(feature, 0.0) + gain
        whole = sum(total.values()) or 1.0
        return [{"feature": f, "share": g / whole} for f, g in sorted(total.items(), key=lambda item: -item[1])]

    def to_json(self) -> dict:
        trees = [json.loads(bytes(b.save_raw("json"))) for b in self.boosters]
        return {"features": list(features.NAMES), "offset": self.offset, "scale": self.scale, "boosters": trees}


def package():
    """xgboost; ModuleNotFoundError under the name of the package to install, which is the small one without CUDA."""
    require()
    import xgboost

    return xgboost


def require() -> None:
    """The same complaint without importing it, which takes a second."""
    if importlib.util.find_spec("xgboost") is None:
        raise ModuleNotFoundError(
            "the surrogate needs xgboost: python -m pip install xgboost-cpu; the search also goes by segment costs alone (additive)",
            name="xgboost-cpu",
        )


def train(pairs: Mapping[str, float], seed: int, members: int = MEMBERS) -> Boosted:
    """Members trained on {canonical code: ms}, the first on all pairs, the others on bootstrap samples."""
    xgboost = package()
    x, y = features.matrix(list(pairs)), np.log(list(pairs.values()))
    offset, scale = float(y.mean()), float(y.std()) or 1.0
    threads = 1 if len(y) < _FEW else 2
    rng, boosters = np.random.default_rng(seed), []
    for number in range(members):
        some = np.arange(len(y)) if number == 0 else rng.integers(0, len(y), len(y))
        data = xgboost.DMatrix(x[some], (y[some] - offset) / scale)
        boosters.append(xgboost.train(_PARAMETERS | {"seed": seed + number, "nthread": threads}, data, _ROUNDS))
    return Boosted(boosters, offset, scale)


def from_json(data: Mapping) -> Boosted:
    """What ``to_json`` gave; ValueError where it is of other features or no model."""
    xgboost = package()
    if tuple(data["features"]) != features.NAMES:
        raise ValueError("it was trained on other features than this version's")
    boosters = []
    for tree in data["boosters"]:
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(json.dumps(tree).encode()))
        except xgboost.core.XGBoostError as e:
            raise ValueError(f"its trees cannot be read: {str(e).splitlines()[0]}") from None
        boosters.append(booster)
    return Boosted(boosters, float(data["offset"]), float(data["scale"]))
