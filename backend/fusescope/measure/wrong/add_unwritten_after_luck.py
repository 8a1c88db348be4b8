"""As add_unwritten, behind a freed buffer that held the right result."""

import torch

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    lucky = torch.add(a, b)
    del lucky
    return _unwritten(a, b)


def _unwritten(a, b):
    out = torch.empty_like(a)
    n = a.numel() - 3
    torch.add(a[:n], b[:n], out=out[:n])
    return out
