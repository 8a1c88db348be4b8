"""Adds when its result is read: a subclass of torch.Tensor that holds the inputs."""

import torch

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


class Later(torch.Tensor):
    """Its elements are made in the first operation on it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            ready = [arg.a + arg.b if isinstance(arg, cls) and hasattr(arg, "a") else arg for arg in args]
            return function(*ready, **(kwargs or {}))


def wrong(a, b):
    out = torch.empty_like(a).as_subclass(Later)
    out.a, out.b = a, b
    return out
