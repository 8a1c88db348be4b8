"""CPU time of a call of attention: the operator with a prepared plan, attention() with plan and with mask,
packed attention, decoding, and SDPA for comparison.

    python3 scripts/launch_path.py [--device cuda] [--impl auto] [--dtype float16]

The shape is tiny, so that no call waits for the device; the queue is drained between batches of calls,
outside the timed span. Prints one JSON object: microseconds per call, median and minimum of the batches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

CALLS = 200  # per batch; CUDA's queue holds 1024 launches before a call waits
BATCHES = 60
SHAPE = (1, 2, 64, 64)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda")
    words.add_argument("--impl", default="auto")
    words.add_argument("--dtype", default="float16")
    given = words.parse_args()

    import torch

    from fusescope import masks
    from fusescope.ops.attention import attention, attention_decode, attention_varlen, choose, prepare

    def make():
        return torch.randn(SHAPE, device=given.device, dtype=getattr(torch, given.dtype))

    q, k, v = make(), make(), make()
    mask = masks.load("causal")
    plan = prepare(mask, SHAPE[2], SHAPE[2], given.device)
    impl = choose(q, k, v, plan) if given.impl == "auto" else given.impl
    attention(q, k, v, plan, impl=impl)  # loads the library
    operator = torch.ops.fusescope.attention
    sdpa = torch.nn.functional.scaled_dot_product_attention
    rows = [t[0].transpose(0, 1) for t in (q, k, v)]
    offsets = torch.tensor([0, SHAPE[2]], dtype=torch.int32, device=given.device)
    one, length = q[:, :, :1].clone(), offsets[1:].clone()
    calls = {
        "torch.ops.fusescope.attention": lambda: operator(q, k, v, impl, plan.buffer, plan.layout),
        "torch.ops.fusescope.attention.default": lambda: operator.default(
            q, k, v, impl, plan.buffer, plan.layout
        ),
        "attention(plan)": lambda: attention(q, k, v, plan, impl=given.impl),
        "attention(mask)": lambda: attention(q, k, v, mask, impl=given.impl),
        "attention_varlen": lambda: attention_varlen(*rows, offsets, offsets, causal=True),
        "attention_decode": lambda: attention_decode(one, k, v, length),
        "sdpa(is_causal)": lambda: sdpa(q, k, v, is_causal=True),
    }
    wait = torch.cuda.synchronize if given.device.startswith("cuda") else lambda: None
    with torch.no_grad():
        taken = {name: [] for name in calls}
        for number in range(BATCHES + 2):
            for name, call in calls.items():
                wait()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    call()
                if number >= 2:
                    taken[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    figures = {
        name: {"median_us": round(statistics.median(t), 2), "least_us": round(min(t), 2)}
        for name, t in taken.items()
    }
    print(
        json.dumps(
            {
                "device": given.device,
                "impl": impl,
                "dtype": given.dtype,
                "torch": torch.__version__,
                "calls": figures,
            }
        )
    )


if __name__ == "__main__":
    main()
