"""eps added to the standard deviation instead of the variance."""

ON = {"layernorm": {"rows": 4096, "cols": 3}}
DTYPES = ("float32", "float16")


def wrong(x, weight, bias, eps):
    d = x.double()
    scaled = (d - d.mean(-1, keepdim=True)) / (d.var(-1, keepdim=True, unbiased=False).sqrt() + eps)
    return (scaled * weight + bias).to(x.dtype)
