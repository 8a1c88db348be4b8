"""What a score expression is as a function of tensors: the scores of the reference and of the peers, a
score_mod of FlexAttention, and, where it only adds to the score, the bias that it adds."""

from __future__ import annotations

from fusescope.core.score.function import function
from fusescope.ops.attention.score.score import Score


def modified(score: Score, scores, rows: tuple[int, int], seq_q: int):
    """The scores (B, H, rows, S_k) of the query rows first to last, in their dtype, as the expression makes
    them."""
    import torch

    batch, heads, _, seq_k = scores.shape
    every = {"dtype": torch.int64, "device": scores.device}
    b = torch.arange(batch, **every)[:, None, None, None]
    h = torch.arange(heads, **every)[:, None, None]
    q = torch.arange(*rows, **every)[:, None] + (seq_k - seq_q)
    found = function(score.expression, torch)(scores, b, h, q, torch.arange(seq_k, **every), score.tables)
    return found.expand(scores.shape)


def score_mod(score: Score, seq_q: int, seq_k: int):
    """The expression as FlexAttention takes it, whose query index begins at 0."""
    import torch

    compute, tables, first = function(score.expression, torch), score.tables, seq_k - seq_q

    def mod(value, b, h, q_idx, kv_idx):
        return compute(value, b, h, q_idx + first, kv_idx, tables).to(value.dtype)

    return mod


def added(score: Score, batch: int, heads: int, seq_q: int, seq_k: int, device):
    """fp32, of sizes that broadcast to (B, H, S_q, S_k): what the expression adds to each score; None where
    that depends on the score."""
    import torch

    if not score.expression.only_adds:
        return None
    depends = score.expression.root.depends
    sizes = (batch if "b" in depends else 1, heads if "h" in depends else 1, seq_q, seq_k)
    zeros = torch.zeros(sizes, device=device)
    return modified(score, zeros, (0, seq_q), seq_q).contiguous()
