"""What a user could pick instead of our kernels: PyTorch's own ways to compute attention, each given the
identical mask.

Where every key is live no mask is passed, and causal with as many queries as keys goes as is_causal=True,
which is that mask. Any other mask goes as an additive tensor of q's dtype (0 or −inf) built outside the call,
because a bool mask would be converted to that at every call; with a bias the two are joined in the call,
since the bias is an input that may change between calls. PyTorch gives NaN or an average where a row has no
live key: for such masks the call ends with setting these rows to zero, as its user would have to, so that the
comparison is on all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.describe.inputs import dense_rows
from fusescope.ops.attention.peers import sdpa
from fusescope.ops.attention.peers.sdpa import dead_scores, later_keys
from fusescope.ops.attention.plan.tiles import row_steps
from fusescope.ops.attention.score import values


@dataclass(frozen=True)
class Masked:
    """How PyTorch is given a mask. Bool tensors are (1 or B, 1, S_q, S_k), or None where no explicit mask is
    needed.

    causal: is_causal=True says it all. ready: the additive mask where there is no bias. dead: what is not
    kept, where there is a bias. empty: bool (1 or B, 1, S_q, 1), rows without a live key, or None.
    """

    causal: bool = False
    ready: Any = None
    bias: Any = None
    dead: Any = None
    empty: Any = None

    def additive(self):
        """What is added to the scores, or None."""
        if self.dead is None:
            return self.bias if self.ready is None else self.ready
        return self.dead.new_full((), float("-inf"), dtype=self.bias.dtype).where(self.dead, self.bias)


def masked(inputs) -> Masked:
    """The mask and bias of these inputs as SDPA takes them."""
    q, bias, mask, plan = inputs["q"], inputs["bias"], inputs["mask"], inputs["plan"]
    if plan.is_full:
        return Masked(bias=bias)
    if bias is None and str(mask) == "causal" and plan.seq_q == plan.seq_k:
        return Masked(causal=True)
    keep = torch.cat(
        [
            dense_rows(mask, plan.seq_q, plan.seq_k, rows, q.device)
            for rows in row_steps(plan.seq_q, plan.seq_k)
        ],
        2,
    )
    empty = ~keep.any(-1, keepdim=True)
    empty = empty if bool(empty.any()) else None
    if bias is not None:
        return Masked(bias=bias, dead=~keep, empty=empty)
    return Masked(ready=dead_scores(~keep, q.dtype), empty=empty)


def _as_bias(inputs):
    """The inputs with a bias in the place of a score expression, made outside the call like a mask.
    Unsupported where the expression does more than add."""
    score, q, plan = inputs.get("score"), inputs["q"], inputs["plan"]
    if score is None:
        return inputs
    bias = values.added(score, *q.shape[:2], plan.seq_q, plan.seq_k, q.device)
    if bias is None:
        raise Unsupported(
            "SDPA does not take this: a score expression that does more than add to the score; an additive "
            "one is given as a bias"
        )
    if inputs["bias"] is not None:
        bias = bias + inputs["bias"]
    return inputs | {"bias": bias.to(q.dtype)}


def _then_zero(run, empty):
    """run, then zeros in the rows that see no key."""
    return run if empty is None else lambda: run().masked_fill_(empty, 0)


def eager(inputs):
    q, k, v, how, score = inputs["q"], inputs["k"], inputs["v"], masked(inputs), inputs.get("score")
    triangle = later_keys(q.shape[2], q.dtype, q.device) if how.causal else None
    rows = q.shape[2]
    modify = None if score is None else lambda s: values.modified(score, s.float(), (0, rows), rows)
    run = sdpa.eager(q, k, v, lambda: how.additive() if triangle is None else triangle, modify)
    return _then_zero(run, how.empty)


def by_sdpa(backend: str | None, inputs):
    """torch.nn.functional.scaled_dot_product_attention by a backend, or by the one that PyTorch chooses
    (None); ``run.backend`` says which."""
    q, k, v, how = inputs["q"], inputs["k"], inputs["v"], masked(_as_bias(inputs))
    gqa = q.shape[1] != k.shape[1]
    function = torch.nn.functional.scaled_dot_product_attention

    def call():
        return function(q, k, v, attn_mask=how.additive(), is_causal=how.causal, enable_gqa=gqa)

    def chosen():
        return sdpa.backend_of(q, k, v, how.additive(), how.causal, gqa)

    run, name = sdpa.on_backend(backend, call, chosen, q, k, v)
    return sdpa.named(_then_zero(run, how.empty), name)
