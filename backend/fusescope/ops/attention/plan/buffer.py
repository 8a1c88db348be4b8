"""A plan's arrays in one int32 tensor, and a text that says where each is: how a plan travels to the
operator (cuda/attention/plan.h).

An operator's arguments cost: some 1600 instructions a tensor, 2700 a number, 3000 a text of any length. A
plan whose arrays and sizes were arguments of their own took half of the time of a launch.
"""

from __future__ import annotations

import math

# As in the text, which plan.h reads in this order; widest entries first, so that all of them lie aligned
# without gaps.
_ORDER = ("bitmaps", "fragments", "items", "schedule", "row_ptr", "tile_index", "tile_code")


def join(arrays: dict, sizes: tuple[int, int, int, int], device, more=()):
    """(buffer, layout, views) of arrays {name: int32 or int64 tensor on the device, or None}; names left out
    are not there either.

    sizes: queries, keys, batch entries and heads that the plan is for. buffer: int32, one dimension. layout:
    the sizes, then the words of each array, then ``more`` numbers (those of parts.py). views: the same names
    with parts of the buffer.
    """
    import torch

    kept = {name: arrays[name].contiguous() for name in _ORDER if arrays.get(name) is not None}
    words = [array.view(-1).view(torch.int32) for array in kept.values()]
    buffer = torch.cat(words) if words else torch.empty(0, dtype=torch.int32, device=device)
    shapes = {name: (array.dtype, tuple(array.shape)) for name, array in kept.items()}
    layout, views = divided(buffer, shapes, sizes, more)
    return buffer, layout, dict.fromkeys(arrays) | views


def divided(buffer, arrays: dict, sizes: tuple[int, int, int, int], more=()):
    """(layout, views) as ``join`` has them, of a buffer with arrays of these {name: (dtype, shape)}."""
    views, begin, lengths = {}, 0, dict.fromkeys(_ORDER, 0)
    for name in (name for name in _ORDER if name in arrays):
        dtype, shape = arrays[name]
        lengths[name] = math.prod(shape) * dtype.itemsize // 4
        end = begin + lengths[name]
        views[name], begin = buffer[begin:end].view(dtype).view(shape), end
    return " ".join(map(str, (*sizes, *lengths.values(), *more))), views
