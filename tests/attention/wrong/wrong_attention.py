"""Attention without the maximum in its softmax: right for small scores, so that random inputs do not
catch it; ``right`` must pass."""

from fusescope.ops.attention import attention


def right(q, k, v, mask=None, *, bias=None, scale=None):
    return attention(q, k, v, mask, bias=bias, scale=scale)


def _softmax_without_maximum(q, k, v, keep, bias, scale):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    weights = (scores if bias is None else scores + bias).exp() * keep
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30) @ v


def forgets_the_maximum(q, k, v, mask=None, *, bias=None, scale=None):
    """exp of the bare scores: right for small ones, infinite for large ones."""
    return _softmax_without_maximum(q, k, v, mask.dense(), bias, scale)
