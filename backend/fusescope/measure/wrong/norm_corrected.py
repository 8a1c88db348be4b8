"""The variance divided by n - 1."""

ON = {"bias_residual_layernorm": {"rows": 33, "cols": 40}}
DTYPES = ("float32",)


def wrong(x, bias, residual, weight, shift, eps):
    s = (x + bias + residual).double()
    return ((s - s.mean(-1, keepdim=True)) / (s.var(-1, keepdim=True) + eps).sqrt() * weight + shift).to(
        x.dtype
    )
