"""What tests of linear_weight_only share, emulated or not."""

from __future__ import annotations

import torch

from fusescope.ops.layer.linear_weight_only import linear_weight_only


def every_weight_is_wrong(impl: str, dtype: str, device: str = "cpu") -> str | None:
    """What is wrong with the 256 numbers of either format, as weights of one input that is 1; None: nothing.
    One column at a time, so that each place of a 16-byte load has had each of them."""
    for kind in (torch.int8, torch.float8_e4m3fn):
        numbers = torch.arange(256, dtype=torch.uint8).view(kind)
        for column in range(16):
            weight = torch.zeros(256, 16, dtype=torch.uint8).view(kind)
            weight[:, column] = numbers
            x = torch.zeros(1, 16, dtype=getattr(torch, dtype))
            x[0, column] = 1
            given = (t.to(device) for t in (x, weight, torch.ones(256)))
            out = linear_weight_only(*given, impl=impl)[0].cpu().float()
            right = numbers.float()
            same = (out == right) | (out.isnan() & right.isnan())
            if not bool(same.all()):
                n = int((~same).nonzero()[0])
                return f"{kind} {n} in column {column} is {float(out[n])}, not {float(right[n])}"
    return None
