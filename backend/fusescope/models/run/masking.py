"""A case's mask and lengths in the forms that modes take: bool, additive, plan, BlockMask. All made outside
the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.models.describe import cases
from fusescope.models.hugging_face.flash import Window
from fusescope.models.run.kv_cache import StepCache
from fusescope.ops.attention import prepare

_BLOCK = 128  # keys of a block of FlexAttention


def masks_of(model, case: Mapping[str, Any], lengths: list[int]) -> dict[str, Any]:
    """mask, keep, additive and causal of a case (see build.inputs).

    causal: a decoder's own mask, which module.is_causal states; padding at the end of a sequence needs no
    mask then, because only padding sees it.
    """
    mask, seq, device = masks.parse(case["mask"]), case["seq"], model.device
    whole = all(n == seq for n in lengths)
    if (
        case.get("phase") == "decode" and not whole
    ):  # each sequence sees its own tokens and the new one behind them
        keep = (
            torch.arange(seq + 1, device=device) <= torch.tensor(lengths, device=device)[:, None, None, None]
        )
        sizes = torch.tensor(lengths, dtype=torch.int32, device=device) + 1
        additive = _additive(keep, model.dtype)
        return {"mask": mask, "keep": keep, "additive": additive, "causal": False, "sizes": sizes}
    own_causal = model.family.KIND == "decoder" and mask.name == "causal"
    # what only config.json describes may have local layers: they are told which tokens are there
    padded = not whole and model.family.SETTINGS is None and model.family.KIND != "decoder"
    if not padded and (own_causal or (mask.name == "full" and whole)):
        return {"mask": mask, "keep": None, "additive": None, "causal": own_causal}
    keep = None
    if mask.name != "full" and not padded:
        keep = prepare(mask, seq, seq, device).dense()
    if not whole:
        there = torch.arange(seq, device=device)[None, :] < torch.tensor(lengths, device=device)[:, None]
        if cases.own_masks(model.family):  # made from the two-dimensional one, in every stack
            return {"mask": mask, "keep": there, "additive": there.long(), "causal": False}
        keep = there[:, None, None, :] if keep is None else keep & there[:, None, None, :]
    return {"mask": mask, "keep": keep, "additive": _additive(keep, model.dtype), "causal": False}


def _additive(keep, dtype: str):
    dtype = getattr(torch, dtype)
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(
        ~keep, torch.finfo(dtype).min
    )


def plan_of(inputs: Mapping[str, Any], device):
    """What ``model_masks.masked`` takes for these inputs: the plan of our kernels, to decode caches of
    different lengths the keys of each sequence (int32 (B,)); None where every key is live or the module
    itself says causal."""
    if "sizes" in inputs:
        return inputs["sizes"]
    if inputs["keep"] is None or inputs["keep"].dim() == 2:
        return None
    case, seq = inputs["case"], inputs["case"]["seq"]
    if all(n == seq for n in inputs["lengths"]):
        return prepare(inputs["mask"], seq, seq, device)
    return prepare(inputs["keep"].expand(case["batch"], 1, seq, seq), seq, seq, device)


def flash_mask_of(inputs: Mapping[str, Any]) -> Window | Any | None:
    """What hugging_face/flash.py takes for these inputs: None where the module says what is masked, the keys
    of each sequence (int32 (B,)) to decode, a Window. Unsupported for other masks, padding included."""
    if "sizes" in inputs:
        return inputs["sizes"]
    if inputs["keep"] is None:
        return None
    mask, case = inputs["mask"], inputs["case"]
    if any(n != case["seq"] for n in inputs["lengths"]):
        raise Unsupported("FlashAttention-4 does not take this: padding (sequences of different lengths)")
    if mask.name == "causal":
        return Window(None, 0)
    if mask.name == "sliding_window":
        values = mask.resolved(case["seq"]).values
        return Window(values["left"], values["right"])
    raise Unsupported(
        f"FlashAttention-4 does not take this: mask {mask}; it takes full, causal and sliding_window"
    )


def block_mask_of(inputs: Mapping[str, Any], device):
    """FlexAttention's BlockMask of mask and lengths; None where every key is live and nothing is causal."""
    case = inputs["case"]
    seq, mask = case["seq"], inputs["mask"]
    whole = all(n == seq for n in inputs["lengths"])
    there = inputs["lengths_tensor"]
    if isinstance(inputs.get("cache"), StepCache):
        return _block_mask_that_grows(inputs["sizes"], seq, inputs["cache"].get_mask_sizes(1)[0])
    if (sizes := inputs.get("sizes")) is not None:
        return create_block_mask(
            lambda b, h, q, k: k < sizes[b], case["batch"], None, 1, seq + 1, device=device
        )
    if case.get("phase") == "decode" or (mask.name == "full" and whole):
        return None
    bound = mask.bind(seq, seq)
    kept = bound.mask_mod(torch.device(device))

    def padded(b, h, q, k):
        return kept(b, h, q, k) & (k < there[b])

    batch = case["batch"] if bound.per_sequence or not whole else None
    return create_block_mask(kept if whole else padded, batch, None, seq, seq, device=device)


def _block_mask_that_grows(sizes, least: int, keys: int) -> BlockMask:
    """Of one query over the first sizes[b] of ``keys``, as they are at a call, never fewer than ``least``:
    blocks of these are whole, and all behind them are looked into."""
    count = -(-keys // _BLOCK)
    order = torch.arange(count, dtype=torch.int32, device=sizes.device).expand(len(sizes), 1, 1, -1)
    whole = torch.full((len(sizes), 1, 1), least // _BLOCK, dtype=torch.int32, device=sizes.device)
    return BlockMask.from_kv_blocks(
        count - whole,
        order.roll(-(least // _BLOCK), -1),
        whole,
        order.contiguous(),
        BLOCK_SIZE=_BLOCK,
        mask_mod=lambda b, h, q, k: k < sizes[b],
        seq_lengths=(1, keys),
    )
