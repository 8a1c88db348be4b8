"""``mask``: what a mask keeps, how it falls into tiles, and what it costs to store."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fusescope import masks
from fusescope.charts.numbers import percent, size, three
from fusescope.cli.numbers import integer
from fusescope.cli.output import table
from fusescope.masks import layout

HELP = "density, tiles, balance and storage of a mask; --save writes it as a dense .npy"
_MOST = 1 << 33  # elements looked at; some ten seconds
_SHADES = " ░▒▓█"


def arguments(parser, words) -> None:
    parser.add_argument(
        "mask",
        metavar="MASK",
        help=f"name[:key=value,…] with one of {', '.join(masks.names())}; or file:path.npy",
    )
    parser.add_argument("--seq", required=True, type=integer(1), help="queries per sequence")
    parser.add_argument("--seq-k", type=integer(1), help="keys per sequence (default: as many as queries)")
    parser.add_argument("--tile", type=integer(1), default=64, help="side of a tile (default 64)")
    parser.add_argument("--save", metavar="FILE", help="write the dense boolean matrix to this .npy file")


def run(args, out) -> int:
    bound = masks.parse(args.mask).bind(args.seq, args.seq_k)
    if bound.seq_q * bound.seq_k * (bound.sequences or 1) > _MOST:
        raise ValueError(
            f"a mask of at most 2^33 elements is looked at here, not {bound.seq_q} × {bound.seq_k}"
        )
    cut = layout.tiles(bound, tile=args.tile)
    bits = layout.bitmaps(bound, tile=args.tile)
    if args.save:
        save(bound, args.save)
    data = describe(bound, cut, bits) | {"saved": args.save}
    out.answer(data, "" if out.json else text(data, bound))
    return 0


def describe(bound, cut, bits) -> dict:
    """Everything the verb says, as JSON values (mask.json)."""
    dense = isinstance(bound.mask, masks.DenseMask)
    return {
        "mask": str(bound.mask),
        "resolved": str(bound.mask.resolved(bound.seq_k)),
        "formula": "any boolean matrix" if dense else masks.definition(bound.mask.name).FORMULA,
        "seq_q": bound.seq_q,
        "seq_k": bound.seq_k,
        "sequences": bound.sequences,
        "elements": cut.elements,
        "kept": cut.kept,
        "density": cut.density,
        "tile": cut.tile,
        "tiles": {
            "total": cut.total,
            "live": cut.live,
            "full": cut.full,
            "partial": cut.partial,
            "live_share": cut.live_share,
            "executed_elements": cut.executed,
            "distinct_bitmaps": len(bits.words),
            "imbalance": cut.imbalance,
        },
        "keys_per_row": {
            "min": int(cut.row_counts.min()),
            "mean": float(cut.row_counts.mean()),
            "max": int(cut.row_counts.max()),
            "empty_rows": int(np.count_nonzero(cut.row_counts == 0)),
        },
        "storage_bytes": layout.storage(cut),
    }


def text(data: dict, bound) -> str:
    """The same for people, with a picture."""
    t, rows = data["tiles"], data["keys_per_row"]
    lines = [
        f"{data['resolved']}  keep where {data['formula']}",
        f"{data['seq_q']} queries × {data['seq_k']} keys"
        + (f" × {data['sequences']} sequences" if data["sequences"] else ""),
        "",
        *picture(bound),
        "",
        f"density     {percent(data['density'])} of {data['elements']:,} elements kept",
        f"tiles {data['tile']:<5} {t['live']:,} of {t['total']:,} live ({percent(t['live_share'])}): "
        f"{t['full']:,} full, {t['partial']:,} partial with {t['distinct_bitmaps']:,} distinct bitmaps",
        f"work        {percent(t['executed_elements'] / data['elements'])} of elements are in live tiles; "
        f"load imbalance (max/mean of tile rows) {three(t['imbalance'])}",
        f"keys/query  {rows['min']} to {rows['max']}, mean {three(rows['mean'])}; {rows['empty_rows']} "
        "queries see none",
        "",
        table(
            ["storage", "bytes", ""],
            [[n, f"{b:,}", size(b)] for n, b in data["storage_bytes"].items()],
            "lrr",
        ),
    ]
    return "\n".join([*lines, *([f"saved to {data['saved']}"] if data["saved"] else [])])


def picture(bound, side: int = 24) -> list[str]:
    """The share of kept elements as shades, two characters a cell; the first sequence where they differ."""
    cut = layout.tiles(bound, tile=-(-max(bound.seq_q, bound.seq_k) // side))
    counts = cut.counts if cut.counts.ndim == 2 else cut.counts[0]
    # Rounded up, so that one kept element shows; the darkest shade is for what is kept entirely.
    shade = np.where(counts == cut.sizes, 4, np.ceil(3 * counts / cut.sizes)).astype(int)
    return ["".join(_SHADES[s] * 2 for s in row) for row in shade]


def save(bound, name: str) -> None:
    """Write the dense matrix strip by strip; ``masks.parse("file:…")`` reads it."""
    path = Path(name)
    if path.suffix != ".npy":
        raise ValueError(f"--save writes a .npy file, not {name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"--save: there is no folder {path.parent}")
    shape = ((bound.sequences,) if bound.per_sequence else ()) + (bound.seq_q, bound.seq_k)
    target = np.lib.format.open_memmap(path, mode="w+", dtype=bool, shape=shape)

    def write(first, last, rows):
        target[..., first:last, :] = rows

    bound.each_rows(max(1, (1 << 22) // bound.seq_k), write)
    target.flush()
