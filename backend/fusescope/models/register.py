"""attn_implementation="fusescope": our attention in any Hugging Face model that takes its attention from the
registry.

    from fusescope.models import register_attention
    register_attention()
    model = AutoModel.from_pretrained(folder, attn_implementation="fusescope")

A model that computes attention itself is refused when it is loaded (hugging_face/support.py), at the latest
in its first forward (hugging_face/scope.py). How a mask reaches the kernels:
- None: every key, or causal where the module says that it is and there is more than one query, as in Hugging
  Face's sdpa;
- a bool mask (Hugging Face's own, for padding and sliding windows): its tile lists are built at the first
  layer of a forward and kept for the others, also under CUDA graph capture, where the lists follow the mask
  at every replay, and under torch.compile, where they are a value of the graph (ops/attention/dispatch/
  listed.py). For one query attention_decode takes the lengths, the window and the padding that it says
  (hugging_face/decoding.py). Otherwise for a few queries, and under torch.export, the mask is added to the
  scores: as exact, without skipping tiles;
- a float mask: added to the scores, as it is meant;
- inside ``masked(plan)``: that prepared plan, for every self-attention of the forward. The way to a sparse
  mask, and under capture. To decode, ``masked(lengths)``.
"""

from __future__ import annotations

import functools

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import attend, model_masks, scope, support
from fusescope.models.hugging_face.attend import Calls

NAME = "fusescope"


def register_attention() -> Calls:
    """Make "fusescope" known to transformers: attention, mask, and the check of models that ask for it;
    returns the counter of its calls. Calling it again is harmless.

    Raises ModuleNotFoundError where transformers is not installed.
    """
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    AttentionInterface.register(NAME, attend.forward)
    AttentionMaskInterface.register(NAME, model_masks.mask)
    if not hasattr(PreTrainedModel.get_correct_attn_implementation, "_fusescope"):
        PreTrainedModel.get_correct_attn_implementation = _checked(
            PreTrainedModel.get_correct_attn_implementation
        )
        PreTrainedModel.set_attn_implementation = _checked_setting(PreTrainedModel.set_attn_implementation)
    return attend.calls


def _checked(own):
    """What every model asks when it is built, and when its implementation is set."""

    @functools.wraps(own)
    def get_correct_attn_implementation(self, *args, **kwargs):
        found = own(self, *args, **kwargs)
        if found == NAME:
            support.refuse(self, NAME)
            scope.watch(self, NAME)
        return found

    get_correct_attn_implementation._fusescope = True
    return get_correct_attn_implementation


def _checked_setting(own):
    """Hugging Face only warns where a model cannot be switched."""

    @functools.wraps(own)
    def set_attn_implementation(self, attn_implementation, *args, **kwargs):
        if attn_implementation == NAME:
            support.refuse(self, NAME)
        own(self, attn_implementation, *args, **kwargs)
        if attn_implementation == NAME and self.config._attn_implementation != NAME:
            raise Unsupported(
                f"{type(self).__name__} cannot be switched to another attention once it is built; give "
                f'attn_implementation="{NAME}" to from_pretrained or from_config'
            )

    return set_attn_implementation
