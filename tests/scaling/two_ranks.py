"""Two ranks that call a divided family in every layout and compare it with one device in float64.

python two_ranks.py STORE FAMILY        rank 0 prints {impl: [error of an element, weights by rank]}
"""

import json
import os
import sys

import torch
import torch.distributed as dist

from fusescope import models
from fusescope.models.describe import layouts
from fusescope.models.parallel import placed
from fusescope.models.run import build

MASKS = {"bert-small": "sliding_window:left=4,right=4", "llama-small": "sliding_window:left=4,right=0"}
IMPLS = ("sdpa", "sdpa-tp2", "fusescope-tp2", "sdpa-pp2", "fusescope-pp2", "fusescope-dp2")


def main(store: str, family: str) -> int:
    """Importing transformers and the reference are most of the work: done once, before the fork. One thread:
    no pool is there that the child would miss."""
    torch.set_num_threads(1)
    sizes = {"batch": 4, "seq": 20, "layers": 2, "heads": 6, "head_dim": 32}
    case = models.validate(family, sizes | ({"mask": MASKS[family]} if family in MASKS else {}))
    model = build.build(family, case, "float32")
    inputs = build.inputs(model, case)
    prepared = family, case, model, inputs, placed.reference(model, inputs)
    if other := os.fork():
        compare(*prepared, 0, store)
        return os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
    code = 1
    try:
        compare(*prepared, 1, store)
        code = 0
    finally:
        os._exit(code)


def compare(family: str, case: dict, model, inputs, expected, rank: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found = {}
    fused = ("fused", "fused-tp2", "fused-dp2") if family.startswith("bert") else ()
    for impl in (*IMPLS, *fused):
        attention, layout = layouts.named(impl)
        layouts.check(family, case, layout, 2, attention)
        own = placed.Placed(impl, model, inputs, rank, 2)
        out = own.run() if own.member else None
        said = [None, None]
        dist.all_gather_object(
            said, (out if own.member and own.output else None, own.weights_bytes if own.member else None)
        )
        whole = torch.cat([o for o, _ in said if o is not None])
        error = float((whole.double() - expected).abs().max()) if whole.shape == expected.shape else None
        found[impl] = [error, [w for _, w in said]]
    if rank == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
