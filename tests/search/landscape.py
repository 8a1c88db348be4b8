"""Made-up times of all schemes: costs of operators, savings where they are fused, something of each segment's
own, and noise."""

from __future__ import annotations

import numpy as np

from fusescope.search import encoding


def landscape(seed: int, noise: float = 0.01, codes=None) -> dict[str, float]:
    """{canonical code: ms} of these codes, all 16,512 distinct ones by default; the seed draws the costs."""
    rng = np.random.default_rng(seed)
    base, saved = rng.lognormal(0, 0.7, encoding.OPERATORS) * 4, rng.normal(1.2, 1.5, encoding.OPERATORS - 1)
    own = {(a, b): rng.normal(0, 0.5) * (b - a > 1) for a in range(15) for b in range(a + 1, 16)}
    codes = [*encoding.schemes(False), *encoding.schemes(True)] if codes is None else codes

    def cost(part: range, attention: bool) -> float:
        whole = sum(base[i] for i in part) - sum(saved[i] for i in part[:-1]) + own[part.start, part.stop]
        return 0.8 * whole if attention and part == encoding.ATTENTION else whole

    found = {}
    for code in codes:
        micro = 30 + sum(cost(p, encoding.attention(code)) for p in encoding.parts(code))
        found[code] = micro / 1000 * float(np.exp(rng.normal(0, noise)))
    return found


def some(seed: int, count: int, noise: float = 0.01) -> dict[str, float]:
    """The 128 schemes with the attention, and others drawn, ``count`` in all; in an order that is drawn,
    too."""
    rng = np.random.default_rng(seed)
    plain = list(encoding.schemes(False))
    codes = [*encoding.schemes(True), *(plain[i] for i in rng.choice(len(plain), count - 128, replace=False))]
    rng.shuffle(codes)
    return landscape(seed, noise, [str(c) for c in codes])
