"""The plan: a mask as lists of live tiles and bitmaps on the device, shared by all attention kernels.

What each tensor holds is defined in cuda/attention/attention.cuh. Kernels and users take a Plan whole, the
operator its buffer and layout; how its bitmaps are laid out is between this file and the kernels.
"""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from dataclasses import dataclass, field, fields
from typing import Any

from fusescope.core.errors import Unsupported
from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.masks import Mask
from fusescope.masks.common.bound import check_sizes
from fusescope.ops.attention.plan import buffer, schedule, tile_lists, tiles
from fusescope.ops.attention.plan.plan_cache import PlanCache

_cache: BoundedCache[Plan] = BoundedCache(64)
_numbers = itertools.count()
_by_key: weakref.WeakValueDictionary[str, Plan] = weakref.WeakValueDictionary()
_LEAST = 2  # columns of a handle: sizes 0 and 1 are constants to torch.compile


@dataclass(frozen=True, eq=False)
class Plan:
    """A mask on (seq_q, seq_k), ready for the kernels on one device; made by ``prepare``.

    batch, heads: for how many batch entries and heads it holds masks of their own; 1 = the same for all.
    row_ptr, tile_index, tile_code (int32) and bitmaps (int64, 64 words per tile) are None where every key is
    live. live_elements, full_tiles and partial_tiles count over all its masks, longest is the tiles of the
    longest list; build_ms is the time of building, ``bytes`` the size on the device. schedule and fragments
    (schedule.py) are there on devices of compute capability 9.0. All arrays are parts of ``buffer`` (int32,
    one dimension); ``layout`` says which (buffer.py). key and handle: what ``of_key`` and ``of_handle`` find
    it by. What else is made of a plan is in a PlanCache next to it.
    """

    mask: Mask | None
    seq_q: int
    seq_k: int
    device: Any
    batch: int
    heads: int
    live_elements: int
    full_tiles: int
    partial_tiles: int
    longest: int
    build_ms: float
    buffer: Any
    layout: str
    row_ptr: Any
    tile_index: Any
    tile_code: Any
    bitmaps: Any
    schedule: Any = None
    fragments: Any = None
    key: str = field(default_factory=lambda: f"plan {next(_numbers)}", init=False)
    handle: Any = field(default=None, init=False)

    def __post_init__(self):
        _by_key[self.key] = self
        object.__setattr__(self, "handle", _handle(int(self.key.removeprefix("plan ")), self.device))

    def __reduce__(self):
        """A copy, or one from another process, gets its own key: this one may be another plan's there."""
        return Plan, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def is_full(self) -> bool:
        return self.row_ptr is None

    @property
    def live_keys(self) -> float:
        """Live keys per query row, on average."""
        return self.live_elements / (self.batch * self.heads * self.seq_q)

    @property
    def executed_keys(self) -> float:
        """Keys per query row in live tiles, on average: what a kernel that works on whole tiles looks at."""
        q_tiles = -(-self.seq_q // tiles.TILE)
        return (self.full_tiles + self.partial_tiles) * tiles.TILE / (self.batch * self.heads * q_tiles)

    @property
    def bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()

    def dense(self):
        """Bool tensor (batch or 1, heads or 1, seq_q, seq_k) on the plan's device, True = keep; cached."""
        return _dense.of(self)

    def __repr__(self) -> str:
        what = str(self.mask) if self.mask is not None else f"a tensor for {self.batch} x {self.heads} masks"
        return (
            f"Plan({what}, {self.seq_q} x {self.seq_k} on {self.device}, "
            f"{self.full_tiles} full + {self.partial_tiles} partial tiles)"
        )


def prepare(mask, seq_q: int, seq_k: int, device="cpu") -> Plan:
    """The plan of a mask for seq_q queries and seq_k keys on a device.

    mask: a Mask, None (every key), or a bool tensor of up to four dimensions broadcastable to (B, H, seq_q,
    seq_k), True = keep. Plans of masks are cached; those of tensors are not, because a tensor can change:
    keep the plan. Raises TypeError for another kind of mask, ValueError where the sizes do not fit it or the
    device is not there.
    """
    import torch

    device = _device(device)
    if mask is None:
        mask = _full()
    if isinstance(mask, torch.Tensor):
        return _of_tensor(mask, seq_q, seq_k, device)
    if not isinstance(mask, Mask):
        raise TypeError(f"a mask is a Mask, a bool tensor or None, not {type(mask).__name__}")
    key = (mask, seq_q, seq_k, str(device))
    return _cache.get_or_make(key, lambda: _of_mask(mask, seq_q, seq_k, device))


def of_key(key: str) -> Plan:
    """The plan of this key, for torch.compile, which hands on texts and numbers; KeyError where it is
    gone."""
    return _by_key[key]


def of_handle(handle) -> Plan:
    """The plan of this handle, in a compiled graph that takes any plan; RuntimeError where it is gone."""
    plan = _by_key.get(f"plan {handle.shape[1] - _LEAST}")
    if plan is None:
        raise RuntimeError("the plan that this was compiled with is gone: keep it as long as that")
    return plan


def _handle(number: int, device):
    """A tensor without elements, on the plan's device, whose size says the number: torch.compile takes sizes
    as variables of one graph, and CUDA graphs are recorded for each."""
    import torch

    handle = torch.empty(0, number + _LEAST, device=device)
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:  # else the second plan makes it a variable
        dynamo.maybe_mark_dynamic(handle, 1)
    return handle


def prepared(mask, seq_q: int, seq_k: int, device) -> Plan | None:
    """The plan of a mask (None: every key) if it is there already, else None."""
    return _cache.get((_full() if mask is None else mask, seq_q, seq_k, str(_device(device))))


def _device(device):
    import torch

    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise Unsupported(f"device {device}; cpu and cuda are supported")
    if device.type == "cuda" and not (torch.cuda.is_initialized() or torch.cuda.is_available()):
        raise ValueError(f"there is no device {device} here: torch finds no GPU (fusescope doctor says why)")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _full() -> Mask:
    from fusescope import masks

    return masks.load("full")


def _of_mask(mask: Mask, seq_q: int, seq_k: int, device) -> Plan:
    begin = time.perf_counter()
    bound = mask.bind(seq_q, seq_k)
    if mask.name == "full":  # nothing to evaluate
        return _plan(mask, bound.seq_q, bound.seq_k, device, 1, 1, None, begin)
    found = tile_lists.of_bound(bound, device)
    return _plan(mask, bound.seq_q, bound.seq_k, device, bound.sequences or 1, 1, found, begin)


def _of_tensor(mask, seq_q: int, seq_k: int, device) -> Plan:
    import torch

    begin = time.perf_counter()
    if mask.dtype != torch.bool:
        raise TypeError(
            f"a mask tensor is of bool, True = keep, not {mask.dtype}; scores are added to by bias="
        )
    seq_q, seq_k = check_sizes(seq_q, seq_k)
    shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
    if mask.dim() > 4 or 0 in shape or shape[2] not in (1, seq_q) or shape[3] not in (1, seq_k):
        raise ValueError(
            f"a mask tensor is broadcastable to (B, H, {seq_q}, {seq_k}); its shape is {tuple(mask.shape)}"
        )
    if mask.device != device:
        raise ValueError(f"the mask tensor is on {mask.device}; this call is on {device}")
    full = mask.reshape(shape).expand(shape[0], shape[1], seq_q, seq_k)

    def part(number, rows, columns):
        return full[number // shape[1], number % shape[1], rows[0] : rows[1], columns[0] : columns[1]]

    found = tile_lists.of_parts(shape[0] * shape[1], seq_q, seq_k, part, device)
    return _plan(None, seq_q, seq_k, device, shape[0], shape[1], found, begin)


def _plan(mask, seq_q, seq_k, device, batch, heads, found, begin) -> Plan:
    """Of the tile lists that were found; None = every key is live."""
    masks = batch * heads
    columns = -(-seq_k // tiles.TILE)
    all_tiles = masks * -(-seq_q // tiles.TILE) * columns
    lists, live, full, partial, longest = (None,) * 4, masks * seq_q * seq_k, all_tiles, 0, columns
    if found is not None:
        lists, live, full, partial, longest = found
        if full == all_tiles:
            lists = (None,) * 4
    arrays = dict(zip(("row_ptr", "tile_index", "tile_code", "bitmaps"), lists))
    if device.type == "cuda":
        import torch

        if lists[0] is not None and torch.cuda.get_device_capability(device) == (9, 0):
            arrays["schedule"], arrays["fragments"] = schedule.build(*lists, masks, seq_q, seq_k)
    data, layout, views = buffer.join(arrays, (seq_q, seq_k, batch, heads), device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    took = (time.perf_counter() - begin) * 1e3
    return Plan(
        mask, seq_q, seq_k, device, batch, heads, live, full, partial, longest, took, data, layout, **views
    )


def _decode(plan: Plan):
    import torch

    masks, edge = plan.batch * plan.heads, tiles.TILE
    if plan.is_full:
        return torch.ones(
            plan.batch, plan.heads, plan.seq_q, plan.seq_k, dtype=torch.bool, device=plan.device
        )
    q_tiles, k_tiles = -(-plan.seq_q // edge), -(-plan.seq_k // edge)
    out = torch.zeros(masks * q_tiles, edge, k_tiles, edge, dtype=torch.bool, device=plan.device)
    lengths = (plan.row_ptr[1:] - plan.row_ptr[:-1]).long()
    row = torch.repeat_interleave(torch.arange(masks * q_tiles, device=plan.device), lengths)
    column, code = plan.tile_index.long(), plan.tile_code.long()
    whole = code < 0
    out[row[whole], :, column[whole], :] = True
    row, column, code = row[~whole], column[~whole], code[~whole]
    for first in range(0, code.numel(), 2048):  # unpacking takes 32 KiB per tile
        some = slice(first, first + 2048)
        out[row[some], :, column[some], :] = tiles.unpack(plan.bitmaps[code[some]])
    out = out.view(masks, q_tiles * edge, k_tiles * edge)[:, : plan.seq_q, : plan.seq_k]
    return out.reshape(plan.batch, plan.heads, plan.seq_q, plan.seq_k)


_dense = PlanCache(_decode)
