"""A plan's arrays in one int32 tensor, and a text that says where each is: how a plan travels to the
operator (cuda/attention/plan.h).

An operator's arguments cost: some 1600 instructions a tensor, 2700 a number, 3000 a text of any length. A
plan whose arrays and sizes were arguments of their own took half of the time of a launch.
"""

from __future__ import annotations

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
    words = {name: array.view(-1).view(torch.int32) for name, array in kept.items()}
    buffer = torch.cat(list(words.values())) if words else torch.empty(0, dtype=torch.int32, device=device)
    views, begin = dict.fromkeys(arrays), 0
    for name, array in kept.items():
        end = begin + words[name].numel()
        views[name], begin = buffer[begin:end].view(array.dtype).view(array.shape), end
    lengths = (words[name].numel() if name in words else 0 for name in _ORDER)
    return buffer, " ".join(map(str, (*sizes, *lengths, *more))), views
