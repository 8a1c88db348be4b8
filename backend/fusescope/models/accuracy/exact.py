"""The reference of a whole model: Hugging Face's own forward in float64, and its attention with every
intermediate kept.

Models ask for float32 in places (norms, softmax, rotary angles) so that half precision survives them; in a
float64 reference that would lose half of the digits, so these requests are answered in float64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def float64_stays() -> Iterator[None]:
    """While inside, a float64 tensor asked to become float32 stays float64, and products of both kinds are of
    float64.

    Integers asked to become float32 do so: positions below 2^24 are exact in it.
    """
    products = {
        torch.matmul,
        torch.bmm,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.nn.functional.linear,
    }

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if any(_wide(a, torch) for a in (*args, *kwargs.values())):
                if function is torch.Tensor.float:
                    function = torch.Tensor.double
                wide = _promoted if function in products else _kept
                args = tuple(wide(a, torch) for a in args)
                kwargs = {k: wide(v, torch) for k, v in kwargs.items()}
            return function(*args, **kwargs)

    with Mode():
        yield


def _wide(value: Any, torch) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def _kept(value: Any, torch) -> Any:
    return torch.float64 if value is torch.float32 else value


def _promoted(value: Any, torch) -> Any:
    return (
        value.double()
        if isinstance(value, torch.Tensor) and value.dtype == torch.float32
        else _kept(value, torch)
    )


def attention(module, query, key, value, mask, keywords: dict[str, Any]) -> dict[str, Any] | None:
    """float64 attention of one call of Hugging Face's attention interface: {"scores", "probabilities",
    "context"}.

    query (B, H, S_q, D); key, value (B, H_kv, S_k, D); mask: bool (True = keep), added floats, or None, then
    causal where the module is and S_q > 1. scores (B, H, S_q, S_k) are scaled, with position bias, before the
    mask; context (B, S_q, H, D). None where the mask is of another kind (FlexAttention's BlockMask) or the
    call has attention sinks.
    """
    if keywords.get("s_aux") is not None or not (mask is None or isinstance(mask, torch.Tensor)):
        return None
    q, k, v = (t.double() for t in (query, key, value))
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) if groups > 1 else t for t in (k, v))
    scaling = keywords.get("scaling")
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    if (cap := keywords.get("softcap")) is not None:
        scores = cap * torch.tanh(scores / cap)
    if (bias := keywords.get("position_bias")) is not None:
        scores = scores + bias.double()
    masked = _masked(module, scores, mask, keywords)
    probabilities = torch.softmax(masked, -1)
    probabilities = torch.where(
        masked.amax(-1, keepdim=True) == -torch.inf, 0.0, probabilities
    )  # rows without a live key
    return {"scores": scores, "probabilities": probabilities, "context": (probabilities @ v).transpose(1, 2)}


def live(module, query, key, mask, keywords: dict[str, Any]):
    """Bool (B or 1, 1 or H, S_q, S_k): which scores of the call count; None where the mask is of another
    kind."""
    if not (mask is None or isinstance(mask, torch.Tensor)):
        return None
    zeros = torch.zeros(1, 1, query.shape[-2], key.shape[-2], dtype=torch.float64, device=query.device)
    return _masked(module, zeros, mask, keywords) > torch.finfo(torch.float16).min / 2


def _masked(module, scores, mask, keywords):
    s_q, s_k = scores.shape[-2:]
    if mask is not None:
        mask = mask[..., :s_k]
        return scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.double()
    causal = keywords.get("is_causal")
    if (getattr(module, "is_causal", False) if causal is None else causal) and s_q > 1:
        keep = torch.ones(s_q, s_k, dtype=torch.bool, device=scores.device).tril(s_k - s_q)
        return scores.masked_fill(~keep, -torch.inf)
    return scores
