"""Peers get the identical mask and give the right result, or say why they cannot."""

import pytest
import torch

from backend.core.errors import Unsupported
from tests.attention.attention_tools import OP, case, wrong

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CASES = (
    {"seq": 70},
    {"seq": 70, "mask": "causal"},
    {"seq": 70, "seq_k": 130, "mask": "causal"},
    {"seq": 130, "seq_k": 70, "mask": "causal"},  # rows without a key
    {"seq": 70, "mask": "bigbird", "bias": "head"},
    {"seq": 70, "mask": "random:density=0.02"},
    {"seq": 70, "mask": "padding:lengths=70+30", "heads": 4, "kv_heads": 2},
    {"seq": 70, "mask": "document:lengths=30+40/60", "bias": "head"},
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize("name", [name for name in OP.PEERS if name != "flex"])
def test_peers_are_right_or_say_why_not(name, dtype, device):
    if device not in OP.PEERS[name].devices:
        pytest.skip(f"{name} exists on {' and '.join(OP.PEERS[name].devices)}")
    ran = 0
    for values in CASES:
        inputs = OP.inputs(
            case(**values), dtype, device, 0, contiguous=device == "cuda"
        )  # fused CUDA kernels fault on odd addresses
        try:
            run = OP.PEERS[name].make(inputs)
        except Unsupported as error:
            assert name not in ("eager", "sdpa", "sdpa_math") and "does not take this: " in str(error)
            continue
        ran += 1
        for _ in range(2):
            assert wrong(run().contiguous(), inputs, dtype) is None, values
            for tensor in (inputs[n] for n in ("q", "k", "v", "bias")):  # the next call must see new values
                if tensor is not None:
                    tensor.copy_(torch.randn(tensor.shape))
    assert ran or (device == "cuda" and dtype == "float32")


@pytest.mark.parametrize("device", DEVICES)
def test_what_really_ran_is_named(device):
    inputs = OP.inputs(case(64), "float16", device, 0)
    names = {name: OP.PEERS[name].make(inputs).backend for name in ("sdpa", "sdpa_math")}
    assert names["sdpa"].endswith("_attention") and names["sdpa_math"] == "math"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "values", ({"seq": 130, "seq_k": 70, "mask": "causal", "bias": "head"}, {"seq": 128, "mask": "padding:lengths=128+50"})
)
def test_flex(values, device):
    inputs = OP.inputs(case(**values, heads=4, kv_heads=2), "float32", device, 0)
    run = OP.PEERS["flex"].make(inputs)
    assert wrong(run().contiguous(), inputs, "float32") is None
    assert run.setup_ms > 0 and run.backend.startswith("flex_attention")


@pytest.mark.gpu
def test_flash_on_a_gpu_takes_no_explicit_mask():
    with pytest.raises(Unsupported, match=r"flash_attention does not take this: .*attn_mask"):
        OP.PEERS["sdpa_flash"].make(OP.inputs(case(200, mask="longformer"), "float16", "cuda", 0))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ("sdpa", "sdpa_efficient", "sdpa_cudnn", "sdpa_flash"))
def test_fused_peers_on_a_gpu_refuse_odd_addresses(name):
    inputs = OP.inputs(case(64), "float16", "cuda", 0, contiguous=False)
    with pytest.raises(Unsupported, match="does not take this"):
        OP.PEERS[name].make(inputs)
