"""Runs emulated kernels on cases and prints what is wrong with each (null: nothing); started by
test_emulated_kernels.py.

python emulated_run.py LIBRARY < [[op, impl, values, dtype, contiguous], …]
"""

import json
import sys

import torch


def main():
    torch.ops.load_library(sys.argv[1])
    torch.set_num_threads(1)
    from fusescope import ops
    from fusescope.measure.checking.check import Case

    reasons = []
    for op, impl, values, dtype, contiguous in json.load(sys.stdin):
        module = ops.load(op)
        case = Case(module, module.validate(values), dtype, "cpu", seed=5, contiguous=contiguous)
        args, _ = module.arguments(case.inputs)
        function = getattr(torch.ops.fusescope, op)
        reasons.append(
            case.verify(lambda function=function, args=args, impl=impl: function(*args, impl)).reason
        )
    print(json.dumps(reasons))


if __name__ == "__main__":
    main()
