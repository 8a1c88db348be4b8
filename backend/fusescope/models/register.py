"""attn_implementation="fusescope": our attention in any Hugging Face model that takes its attention from the
registry.

    from fusescope.models import register_attention
    register_attention()
    model = AutoModel.from_pretrained(folder, attn_implementation="fusescope")

How a mask reaches the kernels:
- None: every key, or causal where the module says that it is and there is more than one query, as in Hugging
  Face's sdpa;
- a bool mask (Hugging Face's own, for padding and sliding windows): its tile lists are built at the first
  layer of a forward and kept with the tensor for the others, also under CUDA graph capture, where the lists
  follow the mask at every replay. For a few queries (decoding), and under torch.compile, the mask is added to
  the scores instead: as exact, without skipping tiles;
- a float mask: added to the scores, as it is meant;
- inside ``masked(plan)``: that prepared plan, for every self-attention of the forward. The way to a sparse
  mask, and under capture.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from fusescope.core.bounded_cache import BoundedCache

NAME = "fusescope"
_NOT_KEPT = (
    -1e30
)  # fp32: far below any score, and finite, so that a row whose first tiles hold nothing stays finite
_FEW = 16  # queries, as in decoding, for which lists of 64 x 64 tiles would cost more to build than they save
_plans: BoundedCache = BoundedCache(256)  # of causality, by (queries, keys, device)
# int32 lengths of decoding, by (batch, keys, device); a dict, because torch.compile traces the look-up
_counts: dict = {}
_MOST_COUNTS = 256
_held: list = [None]  # the plan of ``masked``; not a ContextVar, which torch.compile cannot trace


@dataclass
class Calls:
    """How often our attention ran in this process: the proof that a model uses it (T5 of some versions does
    not)."""

    count: int = 0


_calls = Calls()


def register_attention() -> Calls:
    """Make "fusescope" known to transformers, attention and mask; returns the counter of its calls. Calling
    it again is harmless.

    Raises ModuleNotFoundError where transformers is not installed.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, mask)
    return _calls


@contextlib.contextmanager
def masked(plan):
    """Inside, models with attn_implementation="fusescope" attend by this plan
    (fusescope.ops.attention.prepare) in every self-attention.

    The plan takes the place of the model's own mask, padding and causality included. To decode, where each
    sequence has one query: how many keys of the cache each has, int32 (B,), in the place of a plan. It holds
    for the whole process: one thread at a time. (Under the FlexAttention peer: a BlockMask.)
    """
    before, _held[0] = _held[0], plan
    try:
        yield
    finally:
        _held[0] = before


def mask(**given):
    """The mask that attention gets: none inside ``masked`` and where there is nothing to mask, also while
    capturing or compiling, where Hugging Face itself would build one; else Hugging Face's bool (B, 1, S, T),
    True = keep."""
    import torch
    from transformers.masking_utils import sdpa_mask

    made = None if _held[0] is not None or _nothing(given) else sdpa_mask(**given)
    if made is not None and not torch.compiler.is_compiling():
        made._fusescope_made = True  # for this forward alone
    return made


def _nothing(given) -> bool:
    """Whether the mask is every key, or what the module's own is_causal says."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if given.get("attention_mask") is not None or given.get("local_size") is not None:
        return False
    function, queries, keys = given.get("mask_function"), given["q_length"], given["kv_length"]
    if function is bidirectional_mask_function:
        return bool(given.get("allow_is_bidirectional_skip"))
    return (
        function is causal_mask_function
        and bool(given.get("allow_is_causal_skip"))
        and (queries == keys or queries == 1)
    )


SDPA, FLEX = "fusescope_peer_sdpa", "fusescope_peer_flex"


def register_peers() -> None:
    """Hugging Face's sdpa and flex_attention under names of ours, whose masks do not arise where there is
    nothing to mask.

    With their own masks a captured or compiled sdpa gets an explicit one for full attention, and PyTorch
    takes its math path. And the mask of "eager", the same values as Hugging Face's own, made so that a CUDA
    graph can hold it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import flex_attention_mask, sdpa_mask

    AttentionMaskInterface.register("eager", _eager_mask)
    for name, function, own in (
        (SDPA, sdpa_attention_forward, sdpa_mask),
        (FLEX, flex_attention_forward, flex_attention_mask),
    ):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, _without(own))


def _eager_mask(**given):
    """Hugging Face's additive mask, 0 and the dtype's minimum; its own (5.17) brings a number from the CPU,
    which cannot be captured."""
    import torch
    from transformers.masking_utils import sdpa_mask

    given["allow_is_causal_skip"] = False
    dtype = given.pop("dtype", torch.float32)
    keep = None if _nothing(given) else sdpa_mask(**given)
    if keep is None:
        return None
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(
        ~keep, torch.finfo(dtype).min
    )


def _without(own):
    def peer_mask(**given):
        if (blocks := _held[0]) is not None:
            return blocks
        return None if _nothing(given) else own(**given)

    return peer_mask


def forward(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    position_bias=None,
    **kwargs,
):
    """Hugging Face's attention function: query (B, H, S, D), key and value (B, H_kv, T, D) -> (out (B, S, H,
    D) contiguous, None).

    Raises Unsupported for soft-capped scores, attention sinks and dropout, and whatever ``attention``
    refuses.
    """
    import torch

    from fusescope.core.errors import Unsupported
    from fusescope.ops.attention import attention, attention_decode

    if not torch.compiler.is_compiling():
        _calls.count += 1
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise Unsupported(
                f"attn_implementation fusescope computes plain softmax; {name} is not supported"
            )
    if dropout and module.training:
        raise Unsupported(
            f"attn_implementation fusescope is forward only, without dropout; {dropout} was asked for"
        )
    queries, keys = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and queries > 1 and attention_mask is None
    plan = _held[0] if getattr(module, "is_cross_attention", False) is not True else None
    if isinstance(plan, torch.Tensor):
        return attention_decode(query, key, value, plan, scale=scaling).transpose(1, 2), None
    if plan is not None and (plan.seq_q, plan.seq_k) != (queries, keys):
        plan = None  # another attention of the same forward (a decoder over its encoder): it has no mask then
        causal = False
    elif plan is None and causal and keys > queries:
        key, value, keys = (
            key[:, :, :queries],
            value[:, :, :queries],
            queries,
        )  # an empty static cache: only these are there
    bias = position_bias
    if queries == 1 and plan is None and bias is None and attention_mask is None:
        out = _decode(torch, query, key, value, scaling)
        return out.transpose(1, 2), None
    if plan is None:
        plan, bias = _told(torch, attention_mask, causal, query, keys, bias)
    if bias is not None and bias.dtype not in (query.dtype, torch.float32):
        bias = bias.float()
    out = attention(query, key, value, plan, bias=bias, scale=scaling, out_bshd=True)
    return out.transpose(1, 2), None


def _decode(torch, query, key, value, scaling):
    """One query a sequence over all its keys: by the kernel that splits the keys."""
    from fusescope.ops.attention import attention_decode

    shape = (query.shape[0], key.shape[2], query.device)
    lengths = _counts.get(shape)
    if lengths is None:
        lengths = torch.full(shape[:1], shape[1], dtype=torch.int32, device=query.device)
        if not torch.compiler.is_compiling() and not _capturing(torch, query.device):
            if len(_counts) >= _MOST_COUNTS:
                _counts.clear()
            _counts[shape] = lengths
    return attention_decode(query, key, value, lengths, scale=scaling)


def _told(torch, attention_mask, causal: bool, query, keys: int, bias):
    """(plan, bias) for what Hugging Face gives as a mask."""
    from fusescope.ops.attention import prepare
    from fusescope.ops.attention.plan import under_capture

    queries, device = query.shape[2], query.device
    if attention_mask is None:
        return (_causal(queries, keys, device) if causal else None), bias
    if attention_mask.shape[-1] > keys:
        attention_mask = attention_mask[..., :keys]
    if attention_mask.dtype != torch.bool:
        return None, attention_mask if bias is None else bias + attention_mask
    if torch.compiler.is_compiling() or queries < _FEW:
        added = torch.zeros((), dtype=torch.float32, device=device).where(attention_mask, _NOT_KEPT)
        return None, added if bias is None else bias.float() + added
    capturing = _capturing(torch, device)
    kept = getattr(attention_mask, "_fusescope_plan", None)
    if kept is None or kept[0] != attention_mask._version:
        made = (
            under_capture.plan(attention_mask, queries, keys)
            if capturing
            else prepare(attention_mask, queries, keys, device)
        )
        kept = attention_mask._version, made
        if not capturing or hasattr(
            attention_mask, "_fusescope_made"
        ):  # a graph's lists are not for what comes after it
            attention_mask._fusescope_plan = kept
    return kept[1], bias


def _capturing(torch, device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _causal(queries: int, keys: int, device):
    """The causal plan, kept: to name a mask and find its plan takes longer than a small attention. While
    torch.compile traces it is made then, as a constant of the graph."""
    from fusescope import masks
    from fusescope.ops.attention import prepare

    sizes = (queries, keys, device)
    return _plans.get_or_make(sizes, lambda: prepare(masks.load("causal"), queries, keys, device))


_causal._dynamo_marked_constant = True  # torch.compiler.assume_constant_result, without importing torch here
