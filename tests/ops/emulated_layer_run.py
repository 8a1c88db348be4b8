"""Runs the emulated kernels of the layer through their Python functions and prints what is wrong with each
(null: nothing).

python emulated_layer_run.py LIBRARY < [[op, impl, values, dtype, contiguous], …]
"""

import json
import sys

import torch

from fusescope import kernels, ops
from fusescope.measure.checking.check import Case


def main():
    torch.ops.load_library(sys.argv[1])
    torch.set_num_threads(1)
    kernels.call = lambda op, *args, impl: getattr(torch.ops.fusescope, op)(*args, impl)
    reasons = []
    for op, impl, values, dtype, contiguous in json.load(sys.stdin):
        module = ops.load(op)
        case = Case(module, module.validate(values), dtype, "cpu", seed=5, contiguous=contiguous)
        reasons.append(
            case.verify(lambda module=module, case=case, impl=impl: module.call(case.inputs, impl)).reason
        )
    print(json.dumps(reasons))


if __name__ == "__main__":
    main()
