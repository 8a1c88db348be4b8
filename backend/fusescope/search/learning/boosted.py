"""XGBoost over features of a scheme: each round adds a few trees grown on different samples, which is as
steady as an ensemble."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence

import numpy as np

from fusescope.search.learning import features

_ROUNDS = 40
_PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_bin": 16,
    "num_parallel_tree": 4,
    "max_depth": 4,
    "eta": 0.25,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "min_child_weight": 2.0,
    "lambda": 1.0,
    # with more, threads wait for one another: on a busy machine six times as long, and eight times the work
    "nthread": 1,
    "verbosity": 0,
}


class Boosted:
    """``log_ms`` of codes."""

    def __init__(self, booster, offset: float, scale: float):
        self.booster, self.offset, self.scale = booster, offset, scale

    def log_ms(self, codes: Sequence[str]) -> np.ndarray:
        x = package().DMatrix(features.matrix(codes))
        return self.offset + self.scale * self.booster.predict(x).astype(float)

    def importance(self) -> list[dict]:
        gains = {
            features.NAMES[int(n[1:])]: gain
            for n, gain in self.booster.get_score(importance_type="total_gain").items()
        }
        whole = sum(gains.values()) or 1.0
        return [
            {"feature": f, "share": g / whole} for f, g in sorted(gains.items(), key=lambda item: -item[1])
        ]

    def to_json(self) -> dict:
        trees = json.loads(bytes(self.booster.save_raw("json")))
        return {
            "features": list(features.NAMES),
            "offset": self.offset,
            "scale": self.scale,
            "booster": trees,
        }


def package():
    """xgboost; ModuleNotFoundError under the name of the package to install, which is the small one without
    CUDA."""
    require()
    import xgboost

    return xgboost


def require() -> None:
    """The same complaint without importing it, which takes a second."""
    if importlib.util.find_spec("xgboost") is None:
        raise ModuleNotFoundError(
            "the cost model needs xgboost: python -m pip install xgboost-cpu; the search also goes by "
            "segment costs alone (additive)",
            name="xgboost-cpu",
        )


def train(pairs: Mapping[str, float], seed: int) -> Boosted:
    """Trained on {canonical code: ms}."""
    xgboost = package()
    x, y = features.matrix(list(pairs)), np.log(list(pairs.values()))
    offset, scale = float(y.mean()), float(y.std()) or 1.0
    data = xgboost.DMatrix(x, (y - offset) / scale, nthread=1)
    return Boosted(xgboost.train(_PARAMETERS | {"seed": seed}, data, _ROUNDS), offset, scale)


def from_json(data: Mapping) -> Boosted:
    """What ``to_json`` gave; ValueError where it is of other features or no model."""
    xgboost = package()
    if tuple(data["features"]) != features.NAMES:
        raise ValueError("it was trained on other features than this version's")
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(json.dumps(data["booster"]).encode()))
    except xgboost.core.XGBoostError as e:
        raise ValueError(f"its trees cannot be read: {str(e).splitlines()[0]}") from None
    return Boosted(booster, float(data["offset"]), float(data["scale"]))
