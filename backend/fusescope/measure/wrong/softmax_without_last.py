"""The last element is left out of the sum."""

ON = {"softmax": {"rows": 64, "cols": 1000}}
DTYPES = ("float32", "float16")


def wrong(x):
    return (x.double().exp() / x[..., :-1].double().exp().sum(-1, keepdim=True)).to(x.dtype)
