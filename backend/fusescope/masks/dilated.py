"""A band around the diagonal with gaps."""

from fusescope.masks.common import defaults
from fusescope.masks.common.defaults import positions

NAME = "dilated"
FORMULA = "|q − k| ≤ window · dilation and (q − k) mod dilation = 0"
DESCRIPTION = (
    "A sliding window that keeps every dilation-th key: a wider view for the same number of keys "
    "(Longformer, LongNet)."
)
PARAMETERS = (
    positions("window", defaults.window, "keys kept on each side", "w", typical=(16, 32, 64, 128, 256)),
    positions("dilation", 2, "distance between kept keys", low=1, typical=(1, 2, 3, 4, 8)),
)
EVERY_ROW_LIVE = True


def predicate(q, k, p, batch):
    reach = min(p.window * p.dilation, 1 << 30)  # stays within 32-bit indices
    distance = q - k
    return (abs(distance) <= reach) & (distance % p.dilation == 0)


def parts(p):
    """All of it at once: in strided-permuted order modulo the dilation it is a sliding window inside each
    class."""
    return ((p.dilation, p.dilation, predicate),)
