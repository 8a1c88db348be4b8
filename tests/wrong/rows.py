"""Softmax and LayerNorm that are wrong on purpose, with the operators' signature: every one must be
caught."""

import torch


def softmax_without_last(x):
    """The last element is left out of the sum."""
    return (x.double().exp() / x[..., :-1].double().exp().sum(-1, keepdim=True)).to(x.dtype)


def softmax_padded(x):
    """Rows padded with zeros to a multiple of 32, and the padding summed with them."""
    pad = -x.shape[-1] % 32
    return torch.softmax(torch.nn.functional.pad(x, (0, pad)), -1)[..., : x.shape[-1]].contiguous()


def softmax_half_sum(x):
    """Exponentials summed in fp16."""
    e = (x - x.amax(-1, keepdim=True)).float().exp()
    total = torch.zeros(x.shape[:-1], dtype=torch.float16)
    for j in range(x.shape[-1]):
        total = total + e[..., j].half()
    return (e / total[..., None].float()).to(x.dtype)


def softmax_unwritten_row(x):
    right = torch.softmax(x, -1)
    out = torch.empty_like(right)
    out[:-1] = right[:-1]
    return out


def layernorm_corrected(x, weight, bias, eps):
    """The variance divided by n - 1."""
    x, n = x.double(), x.shape[-1]
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.square().sum(-1, keepdim=True) / (n - 1) + eps).sqrt()
    return (scaled * weight + bias).to(weight.dtype)


def layernorm_eps_outside(x, weight, bias, eps):
    """eps added to the standard deviation instead of the variance."""
    d = x.double()
    scaled = (d - d.mean(-1, keepdim=True)) / (d.var(-1, keepdim=True, unbiased=False).sqrt() + eps)
    return (scaled * weight + bias).to(x.dtype)


def layernorm_without_bias(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, None, eps)


def layernorm_one_pass(x, weight, bias, eps):
    """Variance as mean of squares minus square of mean, in fp32: cancels where the mean is large."""
    f = x.float()
    mean = f.mean(-1, keepdim=True)
    variance = f.square().mean(-1, keepdim=True) - mean.square()
    return ((f - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)
