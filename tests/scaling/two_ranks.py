"""One of two ranks that call every divided family in every layout and compare it with one device in float64.

python two_ranks.py RANK STORE        rank 0 prints {"model impl": [error of an element, weights by rank]}
"""

import json
import sys

import torch
import torch.distributed as dist

from fusescope import models
from fusescope.models.describe import layouts
from fusescope.models.parallel import placed
from fusescope.models.run import build

MASKS = {"bert-small": "sliding_window:left=4,right=4", "llama-small": "sliding_window:left=4,right=0"}
IMPLS = ("sdpa", "sdpa-tp2", "fusescope-tp2", "sdpa-pp2", "fusescope-pp2", "fusescope-dp2")


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    found = {}
    for name in ("gpt2", "bert-small", "llama-small"):
        sizes = {"batch": 4, "seq": 20, "layers": 2, "heads": 6, "head_dim": 32}
        case = models.validate(name, sizes | ({"mask": MASKS[name]} if name in MASKS else {}))
        model = build.build(name, case, "float32")
        inputs = build.inputs(model, case)
        expected = placed.reference(model, inputs)
        for impl in IMPLS:
            layouts.check(name, case, layouts.named(impl)[1], 2)
            own = placed.Placed(impl, model, inputs, rank, 2)
            out = own.run() if own.member else None
            said = [None, None]
            dist.all_gather_object(
                said, (out if own.member and own.output else None, own.weights_bytes if own.member else None)
            )
            whole = torch.cat([o for o, _ in said if o is not None])
            error = float((whole.double() - expected).abs().max()) if whole.shape == expected.shape else None
            found[f"{name} {impl}"] = [error, [w for _, w in said]]
    if rank == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
