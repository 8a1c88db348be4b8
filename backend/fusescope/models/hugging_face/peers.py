"""Attention functions of others under names of ours, for fair comparisons."""

from __future__ import annotations

from fusescope.models.hugging_face import flash, model_masks

SDPA, FLEX = "fusescope_peer_sdpa", "fusescope_peer_flex"
ORIGINAL = {SDPA: "sdpa", FLEX: "flex_attention"}
"""What Hugging Face calls them, for models that compute attention themselves by that name (Falcon)."""


def register_peers() -> None:
    """FlashAttention-4, and Hugging Face's sdpa and flex_attention, under names of ours, whose masks do
    not arise where there is nothing to mask.

    With their own masks a captured or compiled sdpa gets an explicit one for full attention, and PyTorch
    takes its math path. And the mask of "eager", the same values as Hugging Face's own, made so that a CUDA
    graph can hold it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import flex_attention_mask, sdpa_mask

    flash.register()
    AttentionMaskInterface.register("eager", eager_mask)
    for name, function, own in (
        (SDPA, sdpa_attention_forward, sdpa_mask),
        (FLEX, flex_attention_forward, flex_attention_mask),
    ):
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, _without(own, takes_causal=name == SDPA))


def eager_mask(**given):
    """Hugging Face's additive mask, 0 and the dtype's minimum; its own (5.17) brings a number from the CPU,
    which cannot be captured."""
    import torch
    from transformers.masking_utils import sdpa_mask

    given["allow_is_causal_skip"] = False
    dtype = given.pop("dtype", torch.float32)
    keep = None if model_masks.nothing_to_mask(given) else sdpa_mask(**given)
    if keep is None:
        return None
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(
        ~keep, torch.finfo(dtype).min
    )


def _without(own, takes_causal: bool):
    """The mask function ``own``, and None where there is nothing to mask; takes_causal: without a mask the
    attention goes by the module's is_causal, which FlexAttention does not."""
    from transformers.masking_utils import causal_mask_function

    def peer_mask(**given):
        if (blocks := model_masks.held()) is not None:
            return blocks
        nothing = model_masks.nothing_to_mask(given)
        if nothing and not takes_causal and given["q_length"] > 1:
            nothing = given["mask_function"] is not causal_mask_function
        return None if nothing else own(**given)

    return peer_mask
