"""Which kernel impl="auto" means."""

from __future__ import annotations

from functools import cache

from fusescope.ops.attention.dispatch import candidates, cost_model, tracing
from fusescope.ops.attention.dispatch.candidates import Ladder, tma_takes
from fusescope.ops.attention.dispatch.counts import counts_of_call
from fusescope.ops.attention.dispatch.kernel_sources import group as group_of
from fusescope.ops.attention.plan.plan import Plan, prepared
from fusescope.ops.attention.work import parts

# Live keys per row up to which walking them one by one beats whole tiles. On an H100 at (16, 12, 2048, 64) in
# fp16 a live key costs v1 12 to 17 us over all rows and one tile per row costs v3 16 to 25 us (recorded run
# 20261127-070524-bench-02b3e4).
_SPARSE_KEYS = 2
# how much faster per element a tile kernel without tensor cores is than the row-wise one, which reads K and V
# once per row
TILE_KERNEL_SPEEDUP = 3  # estimate
# predicted gain from which the rule takes a mask in parts; in the recorded runs smaller ones were not there
_GAIN = 1.4
_FEW_ROWS = 16  # query rows below which most of a 64-row tile would be idle


def choose(q, k, v, plan: Plan | None, positive_scale: bool = True, bias: str | None = None) -> str:
    """The kernel that "auto" means, from shape, strides, mask, dtype and device, sign of the scale, and
    how a bias is read (candidates.way_of).

    On a GPU for which there is a fit (cost_model.py): of the kernels that it has prices of, are built and
    take these inputs, the one whose predicted time is least; with a bias, of which the prices do not know, of
    those that the rule chooses from, on work items where these suit a bias. By a rule without a fit, and
    while torch.compile traces a call without a plan or torch.export any call (compiled code with a plan
    chooses when it runs). "cpu" on the CPU. Kernels on work items are for plans of one mask for all
    sequences; the first call of a kind makes the items, for each size of groups that has prices, to see what
    they are, unless under CUDA graph capture.
    """
    import torch

    if q.device.type == "cpu":
        return "cpu"
    index = q.device.index
    facts = (q.dtype, int(q.shape[3]), _tma(q, k, v), positive_scale, _scheduled(plan), _one_mask(plan))
    if torch.compiler.is_compiling():
        ladder, gain = Ladder(*tracing.ladder(index, *facts, bias=bias is not None)), 0.0
        if ladder.items and plan is not None and not plan.is_full:
            sizes = int(q.shape[0]), int(q.shape[1]), int(q.shape[3])
            gain = tracing.gain(plan.key, *sizes, tracing.group(ladder.items))
    else:
        known = candidates.inputs(*facts, bias=bias is not None)
        if (chosen := _by_fit(q, k, plan, known, bias)) is not None:
            return chosen
        ladder, gain = candidates.ladder_of(index, known), 0.0
        if ladder.items and (items := _items(plan, q, k, group_of(ladder.items))) is not None:
            gain = items.gain if _suits(items, known.head_dim, bias) else 0.0
    live = executed = k.shape[2]
    if plan is not None:
        live, executed = plan.live_keys, plan.executed_keys
    return by_rule(ladder, q.shape[2], live, executed, gain)


def choose_scored(
    q, k, v, plan: Plan | None, positive_scale: bool = True, expressed: bool = False, bias: str | None = None
) -> str:
    """The kernel that "auto" means where there is a soft-cap, a score expression or there are sinks, of those
    that take them: with a soft-cap or sinks by the fit to times of plain calls, which they make longer alike,
    else, and where ``choose`` goes by the rule, by the rule. Raises Unsupported where none does."""
    import torch

    if q.device.type == "cpu":
        return "cpu"
    facts = q.dtype, int(q.shape[3]), _tma(q, k, v), positive_scale, _scheduled(plan)
    if not expressed and not torch.compiler.is_compiling():
        known = candidates.inputs(*facts, _one_mask(plan), scored=True, bias=bias is not None)
        if (chosen := _by_fit(q, k, plan, known, bias)) is not None:
            return chosen
    facts += False, True, expressed  # without a predicted gain the rule takes whole lists
    live = executed = k.shape[2]
    if plan is not None:
        live, executed = plan.live_keys, plan.executed_keys
    ladder = Ladder(*tracing.ladder(q.device.index, *facts, bias=bias is not None))
    return by_rule(ladder, q.shape[2], live, executed)


def _suits(items: parts.WorkItems | None, head_dim: int, bias: str | None) -> bool:
    """Whether work items are faster than whole lists with this bias too. They fetch its tiles only where keys
    are in their own order, and read elements slower above 64 columns (cuda/attention/NOTES_bias.md)."""
    if bias == "tiles":
        return items is not None and items.in_order
    return bias is None or head_dim <= 64


def _by_fit(q, k, plan: Plan | None, known, bias: str | None) -> str | None:
    """Of the kernels built that take what is ``known`` (with a bias, of those that the rule chooses from) the
    one of the least predicted time; None without prices."""
    index = q.device.index
    if (fit := _fit(index)) is None:
        return None
    accepted = [variant for variant in candidates.built("attention", index) if variant.accepts(known)]
    priced = fit.prices_for(known.dtype, counts_of_call(q, k, plan, {}))
    groups = {v.group for v in accepted if v.plan == "parts" and v.name in priced}
    items = {group: _items(plan, q, k, group) for group in sorted(groups)}
    done = counts_of_call(q, k, plan, {g: made.predicted for g, made in items.items() if made})
    among = [variant.name for variant in accepted]
    if known.bias:
        *among, last = candidates.ladder_of(index, known)[:3]
        if last and _suits(items.get(group_of(last)), known.head_dim, bias):
            among.append(last)
    return fit.choose(known.dtype, done, [name for name in among if name])


def by_rule(ladder: Ladder, seq_q: int, live_keys: float, executed_keys: float, gain: float = 0.0) -> str:
    """The choice without a fit. live_keys and executed_keys: of a query row on average, the latter in whole
    tiles; gain: how many times faster the kernel on work items is predicted to be than on whole lists.

    The row-wise kernel works on live keys, the others on whole tiles: it is taken where a row has few live
    keys on average or there are few rows, and where there are no tensor cores for the dtype (float32, or
    below compute capability 8.0), also where tiles are so empty that the tile kernel's better reuse does not
    pay.
    """
    if ladder.rows and (ladder.tiles is None or live_keys <= _SPARSE_KEYS or seq_q < _FEW_ROWS):
        return ladder.rows
    if ladder.rows and not ladder.tensor_cores and executed_keys > TILE_KERNEL_SPEEDUP * live_keys:
        return ladder.rows
    return ladder.items if ladder.items and (gain >= _GAIN or ladder.tiles is None) else ladder.tiles


def _tma(q, k, v) -> bool:
    return tma_takes(q) and tma_takes(k) and tma_takes(v)


def _one_mask(plan: Plan | None) -> bool:
    """Whether work items can be made: one mask for all sequences."""
    return plan is None or (plan.mask is not None and plan.batch == 1)


def _scheduled(plan: Plan | None) -> bool:
    """Whether v4_scheduled has what it needs of a plan."""
    return plan is None or plan.is_full or plan.schedule is not None


def _items(plan: Plan | None, q, k, group: int) -> parts.WorkItems | None:
    """The work items of this call; None where they would have to be made under CUDA graph capture."""
    import torch

    if not torch.cuda.is_current_stream_capturing():
        return parts.work(plan, q, k, group)
    plan = prepared(None, q.shape[2], k.shape[2], q.device) if plan is None else plan
    return None if plan is None else parts.cached(plan, q.shape[0], q.shape[1], q.shape[3], group)


@cache
def _fit(index: int) -> cost_model.Fit | None:
    import torch

    found = cost_model.load(torch.cuda.get_device_name(index))
    return None if found is None else found[0]
