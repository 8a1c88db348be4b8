"""Sums whole steps of 32 only: right for every size that is a multiple of 32."""

ON = {
    "gemm": {"m": 33, "n": 40, "k": 65},
    "bmm": {"batch_a": "2x1", "batch_b": "3", "m": 33, "n": 40, "k": 65},
}
DTYPES = ("float32", "float16")


def wrong(a, b):
    k = a.shape[-1] // 32 * 32
    return a[..., :k] @ b[..., :k, :]
