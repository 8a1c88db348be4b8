"""Every operator, with every implementation that this machine runs, on odd sizes, awkward strides and every
dtype.

Parametrised over what is found: a new operator or kernel is tested from the moment its file is there.
"""

import contextlib

import pytest
import torch
from op_cases import EIGHT_BIT, GATHERS, SIXTEEN_BITS_ON_A_GPU, cases

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.measure.checking import settings
from fusescope.measure.checking.check import Case


def _implementations(device, kind):
    found = [
        (op, i.name)
        for op in ops.names()
        for i in ops.implementations(op, device)
        if i.kind == kind and i.reason is None
    ]
    return found


def _with_dtypes(pairs):
    return [(op, impl, dtype) for op, impl in pairs for dtype in ops.load(op).DTYPES]


def _try(op, impl, dtype, device):
    module, judged, reasons = ops.load(op), 0, set()
    for values in cases(op, device):
        for contiguous in (True, False):
            case = Case(module, values, dtype, device, seed=3, contiguous=contiguous)
            try:
                run = ops.make(op, impl, case.inputs)
                judgement = case.verify(run)
            except Unsupported as refusal:
                reasons.add(str(refusal))
                continue
            assert judgement.reason is None, f"{values}, contiguous={contiguous}: {judgement.reason}"
            judged += 1
    if not judged:
        expected = dtype == "float32" and device != "cpu" and op in SIXTEEN_BITS_ON_A_GPU
        assert expected or impl != "auto", f"auto refuses {dtype} altogether: {reasons}"
        pytest.skip(f"{impl} does not take {dtype}: {'; '.join(sorted(reasons))}")
    return reasons


@pytest.mark.slow
@pytest.mark.parametrize(("op", "impl", "dtype"), _with_dtypes(_implementations("cpu", "ours")))
def test_ours_on_the_cpu(op, impl, dtype):
    assert not _try(op, impl, dtype, "cpu"), "the CPU kernel takes every case"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "impl", "dtype"),
    _with_dtypes(_implementations("cuda:0", "ours") + [(op, "auto") for op in ops.names()]),
)
def test_ours_on_cuda(op, impl, dtype):
    _try(op, impl, dtype, "cuda:0")


@pytest.mark.slow
@pytest.mark.parametrize("op", ops.names())
def test_eager_is_a_peer_and_right(op):
    assert next(iter(ops.load(op).PEERS)) == "eager"
    for dtype in ops.load(op).DTYPES:
        _try_first(op, "eager", dtype, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("op", "impl"), _implementations("cuda:0", "peer"))
def test_peers_on_cuda(op, impl):
    _try_first(op, impl, "float16", "cuda:0")


def _try_first(op, impl, dtype, device):
    values = cases(op)[-1]
    case = Case(ops.load(op), values, dtype, device, seed=3)
    try:
        judgement = case.verify(ops.make(op, impl, case.inputs))
    except Unsupported as refusal:
        pytest.skip(str(refusal))
    assert judgement.reason is None, f"{values}: {judgement.reason}"


@pytest.mark.parametrize("op", ops.names())
def test_auto_says_what_it_took(op):
    module = ops.load(op)
    inputs = module.inputs(cases(op)[0], module.DTYPES[0], "cpu", seed=0)
    run = ops.make(op, "auto", inputs)
    assert run.backend in {i.name for i in ops.implementations(op, "cpu") if i.kind == "ours"}
    assert torch.equal(ops.joined(op, run()), ops.joined(op, module.call(inputs, run.backend)))


@pytest.mark.parametrize("op", ops.names())
def test_typical_values_of_every_parameter_make_complete_cases(op):
    module = ops.load(op)
    for parameter in module.PARAMETERS:
        for value in parameter.typical:
            complete = module.validate({parameter.name: value})
            keys = {p.name for p in module.PARAMETERS if not p.omitted}
            assert set(complete) - {parameter.name} == keys - {parameter.name}
            assert module.validate(complete) == complete, "validating a complete case changes nothing"


@pytest.mark.parametrize("op", ops.names())
def test_cost_and_tolerance_are_of_the_case(op):
    module = ops.load(op)
    for values in cases(op):
        inputs = module.inputs(values, "float16", "cpu", seed=0)
        cost = module.cost(values, "float16")
        tensors = [t for t in inputs.values() if isinstance(t, torch.Tensor) and t.dtype == torch.float16]
        if op not in (*GATHERS, *EIGHT_BIT):
            assert cost.bytes_read == sum(t.numel() * 2 for t in tensors), "every operand is read once"
        assert 0 <= cost.flop_effective <= cost.flop_executed
        assert cost.bytes_written > 0
        tolerance = ops.tolerance(op, values, "float16")
        assert tolerance.absolute >= 0 and 0 < tolerance.relative < 0.05
        assert tolerance.reason


@pytest.mark.parametrize("op", ops.names())
def test_bad_cases_are_refused_by_name(op):
    module = ops.load(op)
    with pytest.raises(ValueError, match="frobnicate"):
        module.validate({"frobnicate": 3})
    sizes = [p for p in module.PARAMETERS if p.kind == "int" and p.low is not None]
    for parameter in sizes:
        for value in (parameter.low - 1, parameter.high + 1, "many", 1.5):
            with pytest.raises(ValueError, match=parameter.name):
                module.validate({parameter.name: value})


@pytest.mark.slow
@pytest.mark.parametrize("op", ops.names())
def test_an_unknown_kernel_is_refused_by_name(op):
    module = ops.load(op)
    inputs = module.inputs(cases(op)[0], module.DTYPES[0], "cpu", seed=0)
    with pytest.raises(ValueError, match="v99_nothing"):
        ops.make(op, "v99_nothing", inputs)
    kernels.load("cpu")
    with pytest.raises(Unsupported, match="v99_nothing"):
        module.call(inputs, "v99_nothing")


@pytest.mark.parametrize("op", ops.names())
def test_peers_change_no_settings(op):
    """What all of them need is set before; else it would be put back, and no timed call would have it."""
    module, changed = ops.load(op), {}
    inputs = module.inputs(cases(op)[0], module.DTYPES[0], "cpu", seed=0)
    for name, peer in module.PEERS.items():
        if "cpu" in peer.devices and not peer.compiles:
            with settings.kept(changed), contextlib.suppress(Unsupported):
                ops.make(op, name, inputs)()
    assert changed == {}
