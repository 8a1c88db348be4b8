"""A plan's arrays in one int32 tensor, and a text that says where each lies: how a plan travels to the operator (cuda/attention/plan.h).

An operator's arguments cost: some 1600 instructions a tensor, 2700 a number, 3000 a text of any length. A plan whose arrays and sizes
were arguments of their own took half of the time of a launch.
"""

from __future__ import annotations

# As in the text, which plan.h reads in this order; widest entries first, so that all of them lie aligned without gaps.
_ORDER = ("bitmaps", "fragments", "schedule", "row_ptr", "tile_index", "tile_code")


def join(arrays: dict, sizes: tuple[int, int, int, int], device):
    """(buffer, layout, views) of arrays {name: int32 or int64 tensor on the device}; what a plan has not is None or left out.

    sizes: queries, keys, batch entries and heads that the plan is for. buffer: int32, one dimension. layout: the sizes, then the words of
    each array. views: all names again, with parts of the buffer or None.
    """
    import torch

    kept = {name: arrays[name].contiguous() for name in _ORDER if arrays.get(name) is not None}
    flat = [array.view(-1).view(torch.int32) for array in kept.values()]
    buffer = torch.cat(flat) if flat else torch.empty(0, dtype=torch.int32, device=device)
    views, begin = dict.fromkeys(_ORDER), 0
    for (name, array), words in zip(kept.items(), flat):
        views[name] = buffer[begin : begin + words.numel()].view(array.dtype).view(array.shape)
        begin += words.numel()
    lengths = (0 if views[name] is None else views[name].numel() * views[name].element_size() // 4 for name in _ORDER)
    return buffer, " ".join(map(str, (*sizes, *lengths))), views
