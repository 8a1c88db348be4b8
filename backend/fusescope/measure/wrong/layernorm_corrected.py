"""The variance divided by n - 1."""

ON = {"layernorm": {"rows": 64, "cols": 33}}
DTYPES = ("float32", "float16")


def wrong(x, weight, bias, eps):
    x, n = x.double(), x.shape[-1]
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().sum(-1, keepdim=True) / (n - 1) + eps).sqrt()
    return (scaled * weight + bias).to(weight.dtype)
