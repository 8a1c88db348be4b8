"""The recent keys and every stride-th before them."""

from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions

NAME = "strided"
FORMULA = "k ≤ q and (q − k < window or (q − k) mod stride = 0)"
DESCRIPTION = "Causal: the last few keys and every stride-th one before them (Sparse Transformer, strided)."
PARAMETERS = (
    positions("window", defaults.window, "recent keys kept", "w", typical=(16, 32, 64, 128, 256)),
    positions(
        "stride",
        defaults.window,
        "distance between the older kept keys",
        "w",
        low=1,
        typical=(16, 32, 64, 128, 256),
    ),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    distance = q - k
    return (distance >= 0) & ((distance < p.window) | (distance % p.stride == 0))


def parts(p):
    """The recent keys, a band as it is; the older ones, a triangle per class in strided-permuted order."""

    def recent(q, k, p, batch):
        distance = q - k
        return (distance >= 0) & (distance < p.window)

    def older(q, k, p, batch):
        distance = q - k
        return (distance >= 0) & (distance >= p.window) & (distance % p.stride == 0)

    return (1, 1, recent), (p.stride, p.stride, older)
