"""GELU by tanh where erf is asked for, and the reverse."""

from torch.nn.functional import gelu

ON = {"bias_gelu": {"rows": 33, "cols": 100}}
DTYPES = ("float32",)


def wrong(x, bias, approximate):
    return gelu(x + bias, approximate="tanh" if approximate == "none" else "none")
