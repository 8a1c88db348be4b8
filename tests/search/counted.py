"""The layer written out in scalar arithmetic that counts itself: numbers that book every operation done with
them."""

from __future__ import annotations

import math
from collections import Counter
from typing import ClassVar

import numpy as np

EPS = 1e-12


class Number:
    """A float that adds one to ``Number.done`` for each operation it takes part in."""

    done: ClassVar[Counter] = Counter()

    def __init__(self, x: float):
        self.x = float(x)

    def _do(self, word, x):
        Number.done[word] += 1
        return Number(x)

    def __add__(self, o):
        return self._do("add", self.x + o.x)

    def __sub__(self, o):
        return self._do("sub", self.x - o.x)

    def __mul__(self, o):
        return self._do("mul", self.x * o.x)

    def __truediv__(self, o):
        return self._do("div", self.x / o.x)

    def larger(self, o):
        return self._do("max", max(self.x, o.x))

    def of(self, function):
        return self._do(function.__name__, function(self.x))


def numbers(array) -> np.ndarray:
    return np.vectorize(Number, otypes=[object])(np.asarray(array, dtype=float))


def floats(array) -> np.ndarray:
    return np.vectorize(lambda n: n.x, otypes=[float])(array)


def gemm(a, b):
    """(…, m, k) times (…, k, n), each sum begun at zero: k products and k sums an output."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), dtype=object)
    for place in np.ndindex(out.shape):
        *batch, i, j = place
        total = Number(0)
        for t in range(a.shape[-1]):
            total = total + a[(*batch, i, t)] * b[(*batch, t, j)]
        out[place] = total
    return out


def softmax_row(row):
    top = Number(-math.inf)
    for s in row:
        top = top.larger(s)
    powers = [(s - top).of(math.exp) for s in row]
    total = Number(0)
    for p in powers:
        total = total + p
    scale = Number(1) / total
    return [p * scale for p in powers]


def norm_row(row, weight, bias):
    """The formula as it stands: the difference from the mean is formed for the variance, and again for the
    result."""
    n = Number(len(row))
    total = Number(0)
    for x in row:
        total = total + x
    mean = total / n
    squares = Number(0)
    for x in row:
        off = x - mean
        squares = squares + off * off
    scale = Number(1) / (squares / n + Number(EPS)).of(math.sqrt)
    return [(x - mean) * scale * w + b for x, w, b in zip(row, weight, bias)]


def gelu(x):
    half, root = Number(0.5), Number(math.sqrt(0.5))
    return x * half * (Number(1) + (x * root).of(math.erf))


def rows(function, array, *others):
    """function of each row of the last dimension."""
    flat = [function(row, *others) for row in array.reshape(-1, array.shape[-1])]
    return np.array(flat, dtype=object).reshape(array.shape)


def step(number: int, v: dict, heads: int) -> tuple:
    """Operator ``number`` on the object arrays of v."""

    def linear(x, weight):
        return gemm(v[x].reshape(1, -1, v[x].shape[-1]), v[weight].T[None]).reshape(*v[x].shape[:-1], -1)

    def split(a):
        batch, seq, width = a.shape
        return a.reshape(batch, seq, heads, width // heads).transpose(0, 2, 1, 3)

    def sum_norm():
        return rows(
            norm_row, v["ffn2_product"] + v["ffn2_bias"] + v["attended"], v["norm2_weight"], v["norm2_bias"]
        )

    steps = {
        0: lambda: linear("x", "qkv_weight"),
        1: lambda: v["qkv_product"] + v["qkv_bias"],
        2: lambda: tuple(split(a) for a in np.split(v["qkv"], 3, axis=-1)),
        3: lambda: gemm(v["q"], v["k"].swapaxes(2, 3)) * Number(v["q"].shape[-1] ** -0.5),
        4: lambda: np.where(v["mask"], v["scores"], Number(-math.inf)),
        5: lambda: rows(softmax_row, v["masked_scores"]),
        6: lambda: gemm(v["probabilities"], v["v"]),
        7: lambda: v["context"].transpose(0, 2, 1, 3).reshape(v["x"].shape),
        8: lambda: linear("merged", "attention_weight"),
        9: lambda: v["attention_product"] + v["attention_bias"] + v["x"],
        10: lambda: rows(norm_row, v["attention_sum"], v["norm1_weight"], v["norm1_bias"]),
        11: lambda: linear("attended", "ffn1_weight"),
        12: lambda: np.vectorize(gelu, otypes=[object])(v["ffn1_product"] + v["ffn1_bias"]),
        13: lambda: linear("intermediate", "ffn2_weight"),
        14: sum_norm,
    }
    got = steps[number]()
    return got if isinstance(got, tuple) else (got,)
