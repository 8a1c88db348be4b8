"""Random inputs of a case, and the specification that every implementation is compared with. Torch is
imported inside."""

from __future__ import annotations

from fusescope import masks
from fusescope.ops.attention.dispatch import kernel_sources
from fusescope.ops.attention.plan import tiles
from fusescope.ops.attention.plan.plan import prepare
from fusescope.ops.attention.score import drawn
from fusescope.ops.attention.score.values import modified
from fusescope.ops.attention.work import parts
from fusescope.ops.common.tensors import awkward, generator_for, random_tensor

_PIECE = 1 << 25  # scores held at once by the reference: 256 MiB of float64


def inputs(values, dtype, device, seed, contiguous=True):
    """q (B, H, S_q, D), k and v (B, H_kv, S_k, D), bias (1, H, S_q, S_k) or None, the mask and its plan on
    the device; score, a Score with drawn tensors, where the case has one.

    contiguous=False: q, k and v lie as a projection leaves them, (B, S, heads, D) turned to (B, heads, S, D),
    k and v packed in one storage, all behind an offset of one element.
    """
    g = generator_for(device, seed)
    b, h, kv, sq, sk, d = (values[n] for n in ("batch", "heads", "kv_heads", "seq", "seq_k", "head_dim"))
    if contiguous:
        q = random_tensor((b, h, sq, d), dtype, device, g)
        k, v = (random_tensor((b, kv, sk, d), dtype, device, g) for _ in "kv")
    else:
        q = _packed((b, sq, 1, h, d), dtype, device, g)[0]
        k, v = _packed((b, sk, 2, kv, d), dtype, device, g)
    bias = None
    if values["bias"] == "head":
        bias = random_tensor((1, h, sq, sk), dtype, device, g)
        bias = bias if contiguous else awkward(bias)
    mask = masks.parse(values["mask"])
    made = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "plan": prepare(mask, sq, sk, device)}
    if "score" in values:
        made["score"] = drawn.score(values["score"], values, device, seed)
    return made


def _packed(shape, dtype, device, generator):
    """Views (B, heads, S, D) of one storage (B, S, parts, heads, D) that starts one element late."""
    values = random_tensor(shape, dtype, device, generator)
    storage = values.new_empty(values.numel() + 1)
    view = storage[1:].view(shape)
    view.copy_(values)
    return [view[:, :, part].transpose(1, 2) for part in range(shape[2])]


def arguments(inputs):
    """As attention(q, k, v, mask, bias=…, score=…) takes them; mask is the plan (``.mask``, ``.dense()``),
    bias and score only where there is one."""
    extra = {name: inputs[name] for name in ("bias", "score") if inputs.get(name) is not None}
    return (inputs["q"], inputs["k"], inputs["v"], inputs["plan"]), extra


def call(inputs, impl):
    from fusescope.ops.attention.functional import attention

    args, extra = arguments(inputs)
    return attention(*args, **extra, impl=impl)


def prepared(inputs, impl):
    """(milliseconds of building the plan, its bytes on the device), neither of which is part of a call; with
    the work items of a kernel that takes them."""
    plan, q = inputs["plan"], inputs["q"]
    group = kernel_sources.group(auto(inputs) if impl == "auto" else impl)
    if group is None:
        return plan.build_ms, plan.bytes
    work = parts.work(plan, q, inputs["k"], group)
    return plan.build_ms + work.build_ms, plan.bytes + work.bytes


def auto(inputs):
    """The kernel that impl="auto" takes on these inputs."""
    from fusescope.ops.attention.dispatch.candidates import way_of
    from fusescope.ops.attention.dispatch.choice import choose, choose_scored

    given = [inputs[name] for name in ("q", "k", "v", "plan")]
    way = way_of(inputs["bias"], inputs["q"].dtype)
    if "score" in inputs:
        return choose_scored(*given, expressed=True, bias=way)
    return choose(*given, bias=way)


def dense_rows(mask, seq_q: int, seq_k: int, rows: tuple[int, int], device):
    """Rows of a mask by its own predicate, not by the plan: bool (1 or B, 1, rows, seq_k), True = keep."""
    import torch

    bound = mask.bind(seq_q, seq_k)
    parts = [
        tiles.evaluate(bound, number, rows, (0, seq_k), device) for number in range(bound.sequences or 1)
    ]
    return torch.stack(parts)[:, None]


def reference(inputs):
    """The specification in float64, (B, H, S_q, D): scores, explicit mask, softmax with its maximum; rows
    without a key are zeros.

    In pieces of query rows, so that S = 16384 fits. The mask comes from its formula.
    """
    import torch

    v = inputs["v"].double()
    out = torch.empty(inputs["q"].shape, dtype=torch.float64, device=v.device)
    for rows, weights in softmax(inputs):
        out[:, :, rows] = product(weights, v)
    return out


def softmax(inputs):
    """(the query rows of a piece, as a slice, and their weights in float64, (B, H, rows, S_k)), piece by
    piece."""
    q, k, bias = inputs["q"], inputs["k"].double(), inputs["bias"]
    b, h, sq, d = q.shape
    group, sk = h // k.shape[1], k.shape[2]
    step = max(1, _PIECE // (b * h * sk))
    for first in range(0, sq, step):
        rows = (first, min(first + step, sq))
        # The heads of a group see one KV head: they are rows of one product.
        piece = q[:, :, rows[0] : rows[1]].double().reshape(b, h // group, group * (rows[1] - rows[0]), d)
        scores = (piece @ k.transpose(2, 3)).view(b, h, rows[1] - rows[0], sk) * d**-0.5
        if inputs.get("score") is not None:
            scores = modified(inputs["score"], scores, rows, sq)
        if bias is not None:
            scores += bias[:, :, rows[0] : rows[1]].double()
        keep = dense_rows(inputs["mask"], sq, sk, rows, q.device)
        scores.masked_fill_(~keep, float("-inf"))
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top.masked_fill_(top == float("-inf"), 0)).exp_()
        total = weights.sum(-1, keepdim=True)
        weights /= total.masked_fill_(total == 0, 1)
        yield slice(*rows), weights


def product(weights, v):
    """weights (B, H, rows, S_k) times v (B, H_kv, S_k, D): (B, H, rows, D)."""
    b, h, rows, sk = weights.shape
    return (weights.reshape(b, v.shape[1], -1, sk) @ v).view(b, h, rows, -1)
