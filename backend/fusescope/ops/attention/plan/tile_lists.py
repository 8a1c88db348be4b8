"""Tile lists of a mask: by its formula's bounds where it has any, else by every element."""

from __future__ import annotations

from fusescope.ops.attention.plan import from_bounds, tiles


def of_bound(bound, device, moduli: tuple[int, int] = (1, 1)):
    """((row_ptr, tile_index, tile_code, bitmaps), live elements, full tiles, partial tiles, longest list) of
    a bound mask on a device. moduli: of rows and columns, whose places are in strided-permuted order modulo
    them."""
    try:
        return from_bounds.tile_lists(bound, device, moduli=moduli)
    except (AttributeError, TypeError):  # the formula needs more than bounds; an error of its own comes again
        pass

    def part(number, rows, columns):
        return tiles.evaluate(bound, number, rows, columns, device, moduli)

    return of_parts(bound.sequences or 1, bound.seq_q, bound.seq_k, part, device)


def of_parts(masks: int, seq_q: int, seq_k: int, part, device):
    """The same of ``masks`` masks given in parts: part(number, rows, columns) is a bool tensor of these
    ranges of one of them."""
    import torch

    counts, index, full, words, elements = [], [], [], [], torch.zeros((), dtype=torch.int64, device=device)
    for number in range(masks):
        for rows in tiles.row_steps(seq_q, seq_k, device.type):
            pieces = [tiles.tiles_of(part(number, rows, columns)) for columns in tiles.column_steps(seq_k)]
            live, is_full = (torch.cat([piece[i] for piece in pieces], 1) for i in (0, 1))
            at = live.nonzero()
            counts.append((live > 0).sum(1))
            index.append(at[:, 1].to(torch.int32))
            full.append(is_full[at[:, 0], at[:, 1]])
            words += [piece[2] for piece in pieces]
            elements += live.sum()
    is_full = torch.cat(full)
    if is_full.numel() >= 1 << 31:
        raise ValueError(f"a plan holds fewer than 2^31 live tiles, this mask has {is_full.numel()}")
    bitmaps, number = tiles.unique_rows(torch.cat(words))
    code = torch.full_like(is_full, -1, dtype=torch.int32)
    code[~is_full] = number.to(torch.int32)
    per_row = torch.cat(counts)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), per_row.cumsum(0)]).to(torch.int32)
    elements, whole, longest = torch.stack([elements, is_full.sum(), per_row.max()]).tolist()
    return (
        (row_ptr, torch.cat(index), code, bitmaps.contiguous()),
        elements,
        whole,
        is_full.numel() - whole,
        longest,
    )
