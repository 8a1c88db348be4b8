"""Normalises the sum without the bias."""

from torch.nn.functional import layer_norm

ON = {"bias_residual_layernorm": {"rows": 33, "cols": 40}}
DTYPES = ("float32", "bfloat16")


def wrong(x, bias, residual, weight, shift, eps):
    return layer_norm(x + residual, x.shape[-1:], weight, shift, eps)
