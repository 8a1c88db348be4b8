"""One implementation of a parallel comparison on the ranks that run it: which of them this process is, the
module that it holds, and the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fusescope.models.describe import layouts
from fusescope.models.hugging_face import model_masks, peers
from fusescope.models.parallel import split as splitting
from fusescope.models.parallel.fused import FusedShare
from fusescope.models.parallel.groups import Groups
from fusescope.models.parallel.stages import Pipeline, Stage
from fusescope.models.register import register_attention
from fusescope.models.run import masking, tolerance
from fusescope.models.run.build import Model


class Placed:
    """An attention with a layout over ranks 0 … ranks−1, built for a model and a case.

    Every rank of the world makes it (new groups are a matter of all); ``member`` says whether this one runs
    it. Ranks are numbered replica by replica, in a replica stage by stage, in a stage along the tensor
    parallel degree. ``run()`` is one call on this replica's part of the batch, hidden states or None
    (``output``: where this rank has a part of the result that no other has). weights_bytes: of this rank.
    """

    def __init__(self, impl: str, model: Model, inputs: Mapping[str, Any], rank: int, micro_batches: int = 1):
        self.name = impl
        self.attention, self.layout = layouts.named(impl)
        self.member = rank < self.layout.ranks
        groups = Groups(self.layout)
        if not self.member:
            return
        layout, split = self.layout, layouts.split_of(model.name)
        tensor = rank % layout.tp
        stage = rank // layout.tp % layout.pp
        self.replica = rank // layout.tp // layout.pp
        self.output = tensor == 0 and stage + 1 == layout.pp
        self._model, self._inputs = model, inputs
        self.renew()
        self._pipeline = None
        if self.attention == layouts.FUSED:
            self._stage = FusedShare(model, inputs, layout.tp, tensor, groups.tensor)
            self.weights_bytes = self._stage.weights_bytes
            return
        call = caller(self.attention, model, inputs)
        base = base_of(model, self.attention)
        kept = Stage(base, split, stage, layout.pp, call)  # with one stage: all layers
        if layout.tp > 1:
            splitting.divide(base, split, layout.tp, tensor, groups.tensor)
        self.weights_bytes = sum(p.nbytes for p in base.parameters())
        self._stage = kept
        if layout.pp > 1:
            self._pipeline = Pipeline(kept, stage, layout.pp, micro_batches, model.device, groups.stages)

    def renew(self) -> None:
        """Take the token ids as they are in the inputs now; nothing where this rank is no member."""
        if not self.member:
            return
        share = self._inputs["input_ids"].shape[0] // self.layout.dp
        self._ids = self._inputs["input_ids"][self.replica * share : (self.replica + 1) * share]

    def run(self) -> torch.Tensor | None:
        with torch.no_grad():
            return self._pipeline.run(self._ids) if self._pipeline else self._stage(self._ids)


def base_of(model: Model, attention: str) -> Any:
    """The base model (no head) with this attention: modules of its own, the very weights of the model."""
    register_attention() if attention == "fusescope" else peers.register_peers()
    whole = model.fresh("fusescope" if attention == "fusescope" else peers.SDPA)
    return getattr(whole, "base_model", whole)


def caller(attention: str, model: Model, inputs: Mapping[str, Any]):
    """call(base, input_ids= or inputs_embeds=) -> hidden states, with the mask of the case prepared."""
    plan = masking.plan_of(inputs, model.device) if attention == "fusescope" else None
    given = None if attention == "fusescope" else inputs["additive"]
    settings = {"use_cache": False} if model.family.KIND == "decoder" else {}

    def call(base, **tokens):
        if attention != "fusescope":
            return base(**tokens, attention_mask=given, **settings).last_hidden_state
        with model_masks.masked(plan):
            return base(**tokens, **settings).last_hidden_state

    return call


def reference(model: Model, inputs: Mapping[str, Any]) -> torch.Tensor:
    """The model in float64 on one device, attention as matmul and softmax, in pieces of the batch; (B, S,
    width) on the CPU."""
    module = model.reference(torch.float64)
    base = getattr(module, "base_model", module)
    settings = {"use_cache": False} if model.family.KIND == "decoder" else {}
    with torch.no_grad():
        return torch.cat(
            [
                base(
                    input_ids=piece["input_ids"], attention_mask=piece["additive"], **settings
                ).last_hidden_state.cpu()
                for piece in tolerance.pieces(model, inputs, torch.float64)
            ]
        )
