"""NaN in the last element."""

ON = {
    "gemm": {"m": 33, "n": 40, "k": 65},
    "bmm": {"batch_a": "2x1", "batch_b": "3", "m": 33, "n": 40, "k": 65},
}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = a @ b
    out[..., -1, -1] = float("nan")
    return out
