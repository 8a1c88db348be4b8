"""Hooks that name the layer around every operator, in a real torch trace."""

import pytest
from made_up import load

from fusescope.profiling.collect import torch_trace
from fusescope.profiling.collect.module_hooks import named


def test_operators_of_a_real_trace_know_their_layer(tmp_path):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.ReLU()))
    x = torch.ones(2, 8)
    with named(model, "net"), torch.no_grad():
        torch_trace.collect(
            lambda: model(x), tmp_path / "t.json.gz", "cpu", wait=0, warmup=1, active=2, memory=True
        )
    _, rows = load(tmp_path / "t.json.gz", tmp_path / "out")
    layers = {o["name"]: o["module"] for o in rows["operators"]}
    assert layers["aten::linear"] == "net.0" and layers["aten::relu"] == "net.1.0"
    assert {m["module"] for m in rows["module_summary"]} == {"net", "net.0", "net.1", "net.1.0"}
    assert len(rows["steps"]) == 2 and rows["memory"] and {m["device_type"] for m in rows["memory"]} == {0}


def test_hooks_are_taken_off_even_after_an_error():
    import torch

    model = torch.nn.Linear(2, 2)
    with pytest.raises(RuntimeError), named(model):
        model(torch.ones(3, 5))
    assert not model._forward_hooks and not model._forward_pre_hooks
