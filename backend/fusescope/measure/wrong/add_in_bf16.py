"""Adds in bf16 in an fp16 case."""

ON = {"add": {"n": 1000}}
DTYPES = ("float16",)


def wrong(a, b):
    return (a.bfloat16() + b.bfloat16()).to(a.dtype)
