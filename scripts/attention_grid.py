"""The grid of attention: 8 masks on many shapes, recorded cell by cell in as many sessions as it takes.

    python3 scripts/attention_grid.py cells                            what is in it, what is recorded
    python3 scripts/attention_grid.py record --out DIR --seconds 400   measures missing cells
    python3 scripts/attention_grid.py record … --shapes gqa            of 32 query heads on 8 KV heads
    python3 scripts/attention_grid.py record … --shapes odd            of lengths that no tile divides
    python3 scripts/attention_grid.py record … --dtype bfloat16        the same cells in bf16
    python3 scripts/attention_grid.py blocks --out DIR --seconds 60    the same, masks of whole 64 x 64 blocks

A session is one bench run, in a few fresh processes that share --budget, of as many missing cells as fit
into its seconds; a cell is missing while no recorded run has every implementation named by --impl on it, our
kernels as they are now. The result is DIR/recorded.tar.gz, to be unpacked under profiles/recorded/, where the
next session finds it. Masks of whole blocks are the element masks rounded up to blocks, written to
profiles/recorded/masks/, which the records name: commit them with the run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tarfile
import time
from functools import partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]
sys.path.insert(0, str(ROOT / "scripts"))

from recordings import PROCESSES  # noqa: E402

from fusescope import masks, ops  # noqa: E402
from fusescope.core import same_code  # noqa: E402
from fusescope.core.records import BenchSpec  # noqa: E402
from fusescope.masks import layout  # noqa: E402
from fusescope.store import folder  # noqa: E402

BLOCK_MASKS = ROOT / "profiles" / "recorded" / "masks"
TITLES = {
    "grid": "Attention grid",
    "gqa": "Attention grid, 32 heads on 8 KV heads",
    "odd": "Attention grid, lengths that no tile divides",
}
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
MASKS = (
    "sliding_window",
    "sliding_window:right=0",
    "longformer",
    "bigbird",
    "dilated",
    "strided",
    "causal",
    "full",
)
"""By their defaults, which depend on the length."""
SMALL = [(b, 12, s, 64) for s, bs in ((2048, (16, 1)), (512, (16, 1)), (128, (16, 1))) for b in bs]
SHAPES = {  # (batch, heads, seq, head_dim[, kv_heads])
    "grid": [
        *SMALL[:2],
        (8, 12, 4096, 64),
        (1, 12, 4096, 64),
        *SMALL[2:],
        (4, 32, 4096, 128),
        (1, 32, 16384, 128),
    ],
    "gqa": [(4, 32, 4096, 128, 8), (1, 32, 16384, 128, 8), (8, 32, 1024, 128, 8), (1, 32, 512, 128, 8)],
    "odd": [
        (2, 16, 3000, 128),
        (8, 12, 3000, 64),
        (1, 32, 6000, 128, 8),
        (4, 16, 2500, 96),
        (4, 16, 1000, 80),
        (1, 12, 777, 64),
    ],
}
BLOCK_SHAPES = [(16, 12, 2048, 64), (16, 12, 512, 64), (8, 12, 4096, 64)]


def grid(shapes: str = "grid") -> list[dict]:
    """All cells of these shapes as complete cases, causal and full last at each shape: they say least about
    skipping."""
    return [case(mask, *shape) for shape in SHAPES[shapes] for mask in MASKS]


def case(mask, batch, heads, seq, head_dim, kv_heads=None) -> dict:
    values = {"batch": batch, "heads": heads, "seq": seq, "head_dim": head_dim, "mask": mask}
    return ops.load("attention").validate(values | ({"kv_heads": kv_heads} if kv_heads else {}))


def seconds(values: dict, impls: int, budget: float, processes: int) -> float:
    """Estimate for a cell: two modes of sampling; in each process compiling FlexAttention and three float64
    checks."""
    scores = values["batch"] * values["heads"] * values["seq"] ** 2
    once = 2.0 + impls * (0.08 + 3 * 20e-12 * scores) + 6 * 150e-12 * scores
    return 2 * budget + processes * once


def recorded(
    home: Path, impls: tuple[str, ...], sources: dict[str, str | None], dtype: str = "float16"
) -> set[str]:
    """The cells, as JSON texts, with a record of each implementation in a folder's runs; of our kernels as
    their sources are now."""
    have: dict[str, set[str]] = {}
    for run in sorted(path.parent for path in home.glob("*-bench-*/run.json")):
        for r in folder.records(run):
            now = sources.get(r.impl)
            same = now is None or same_code.same(r.op, r.impl, r.source_hash, now)
            if r.op == "attention" and r.dtype == dtype and r.device.startswith("cuda") and same:
                have.setdefault(json.dumps(dict(r.case), sort_keys=True), set()).add(r.impl)
    return {text for text, done in have.items() if done >= set(impls)}


def blocks() -> list[dict]:
    """Cells of masks rounded up to whole blocks, whose files are written. Runs start in the root, where the
    records' relative paths resolve."""
    BLOCK_MASKS.mkdir(parents=True, exist_ok=True)
    found = []
    for batch, heads, seq, head_dim in BLOCK_SHAPES:
        for text in ("sliding_window", "longformer", "bigbird"):
            file = BLOCK_MASKS / f"blocks64-{text}-{seq}.npz"
            if not file.is_file():
                live = layout.tiles(masks.parse(text), seq, seq, 64).live_map
                np.savez_compressed(file, mask=live.repeat(64, 0).repeat(64, 1)[:seq, :seq])
            found.append(case(f"file:{file.relative_to(ROOT)}", batch, heads, seq, head_dim))
    return found


def record(options, cells: list[dict], impls: tuple[str, ...], title: str) -> str:
    from record_step import compress, line, whole

    from fusescope.jobs import submit
    from fusescope.store import library

    os.environ["FUSESCOPE_PROFILES"] = str(options.out / "work")
    (options.out / "work").mkdir(parents=True, exist_ok=True)
    spec = BenchSpec(
        op="attention",
        impls=impls,
        cases=tuple(cells),
        baseline="sdpa",
        dtype=options.dtype,
        device=options.device,
        cache=options.cache,
        budget_s=options.budget / options.processes,
        min_s=0.01,
        processes=options.processes,
    )
    started = time.monotonic()
    run = submit.submit("bench", dataclasses.asdict(spec) | {"impls": list(impls), "cases": cells}, title)
    done = submit.wait(run, options.seconds)
    if done.live:  # what is measured stays; the rest is another call's
        submit.cancel(run)
        done = submit.wait(run, 60)
    home = whole(library.find(run))
    records = folder.records(home)
    compress(home)
    with tarfile.open(options.out / "recorded.tar.gz", "w:gz") as archive:
        archive.add(home, home.name)
    measured = len({r.case_key for r in records})
    took = f"{measured} of {len(cells)} cells in {time.monotonic() - started:.0f} s"
    last = f"{run} {done.status}: {took} ({done.reason or 'complete'})"
    return "\n".join([*(line(r.to_json()) for r in records), last])


def shard(text: str) -> tuple[int, int]:
    """(I, N) of "I/N", 0 <= I < N."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 0 to N - 1")
    return int(number), int(count)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=("cells", "record", "blocks"))
    words.add_argument("--out", type=Path, help="where recordings go")
    words.add_argument("--seconds", type=float, default=400, help="how long this session may last")
    words.add_argument("--budget", type=float, default=0.8, help="seconds of sampling per cell and mode")
    words.add_argument(
        "--processes",
        type=int,
        default=PROCESSES,
        help="fresh processes of each cell",
    )
    words.add_argument("--impl", default="", help="implementations (default: all that run on a GPU)")
    words.add_argument("--device", default="cuda:0")
    words.add_argument("--dtype", default="float16", choices=DTYPES)
    words.add_argument("--shapes", default="grid", choices=SHAPES, help="which cells")
    words.add_argument("--cache", default="warm", choices=("warm", "cold", "both"))
    words.add_argument(
        "--recorded", type=Path, default=ROOT / "profiles" / "recorded", help="folder of earlier sessions"
    )
    words.add_argument("--again", action="store_true", help="recorded cells too")
    words.add_argument(
        "--any-source", action="store_true", help="count records of kernels that were edited since"
    )
    words.add_argument("--only", default="", help="cells whose JSON text contains this")
    words.add_argument(
        "--shard",
        type=shard,
        default=(0, 1),
        metavar="I/N",
        help="every Nth missing cell from the Ith: a GPU of N",
    )
    options = words.parse_args()
    os.chdir(ROOT)
    listed = ops.implementations("attention", "cuda:0", "sm_90a")
    impls = (
        tuple(options.impl.split(",")) if options.impl else tuple(i.name for i in listed if i.reason is None)
    )
    if options.what != "cells" and options.out is None:
        words.error(f"{options.what} needs --out DIR")
    if options.out:
        options.out = options.out.resolve()
        options.out.mkdir(parents=True, exist_ok=True)
    sources = {} if options.any_source else {i.name: i.source_hash for i in listed}
    have = set() if options.again else recorded(options.recorded, impls, sources, options.dtype)
    cells = blocks() if options.what == "blocks" else grid(options.shapes)
    cells = [c for c in cells if options.only in json.dumps(c)]
    missing = [c for c in cells if json.dumps(c, sort_keys=True) not in have][
        options.shard[0] :: options.shard[1]
    ]
    cost = partial(seconds, impls=len(impls), budget=options.budget, processes=options.processes)
    if options.what == "cells":
        for c in cells:
            state = "missing " if c in missing else "recorded"
            heads = f"{c['heads']}/{c['kv_heads']}" if c["heads"] != c["kv_heads"] else c["heads"]
            shape = f"{c['batch']:2},{heads},{c['seq']},{c['head_dim']}"
            print(f"{state} {cost(c):5.1f} s  {shape}  {c['mask']}")
        print(f"{len(missing)} of {len(cells)} missing, {sum(map(cost, missing)):.0f} s by estimate")
        return 0
    chosen, total = [], 15.0 * options.processes  # start, libraries, ceilings
    for c in missing:
        total += cost(c)
        if total > options.seconds:
            break
        chosen.append(c)
    if not chosen:
        print("nothing is missing" if not missing else f"{options.seconds:.0f} s are too few for one cell")
        return 0 if not missing else 1
    title = f"{TITLES[options.shapes]} {DTYPES[options.dtype]}"
    if options.what == "blocks":
        title = f"{TITLES['grid']} {DTYPES[options.dtype]}, whole 64 x 64 blocks"
    print(record(options, chosen, impls, title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
