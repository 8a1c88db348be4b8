"""Peers get the identical mask and give the right result, or say why they cannot."""

import sys
import types

import pytest
import torch

from fusescope import masks
from fusescope.core.errors import Unsupported
from fusescope.ops.attention import prepare
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


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize(
    "name", [name for name in OP.PEERS if name not in ("flex", "flex_flash", "flash4", "cudnn_blocks")]
)
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


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "values",
    (
        {"seq": 130, "seq_k": 70, "mask": "causal", "bias": "head"},
        {"seq": 128, "mask": "padding:lengths=128+50"},
    ),
)
def test_flex(values, device):
    inputs = OP.inputs(case(**values, heads=4, kv_heads=2), "float32", device, 0)
    run = OP.PEERS["flex"].make(inputs)
    assert wrong(run().contiguous(), inputs, "float32") is None
    assert (
        run.setup_ms > 0
        and run.setup_bytes > 0
        and run.compile_ms > 0
        and run.backend.startswith("flex_attention")
    )


def vendor_inputs(mask="full", seq=128, seq_k=None, dtype="float16", bias="none", head_dim=64):
    return OP.inputs(case(seq, seq_k, mask, head_dim=head_dim, bias=bias), dtype, "cpu", 0)


@pytest.mark.parametrize(
    "name, values, text",
    (
        ("flash4", {"dtype": "float32"}, "float32; it takes float16 and bfloat16"),
        ("flash4", {"bias": "head"}, "a bias"),
        ("flex_flash", {"dtype": "float32"}, "float32; it takes float16 and bfloat16"),
        ("flex_flash", {"mask": "bigbird"}, "compute capability 9.0, and this is cpu"),
        ("flash4", {"mask": "longformer"}, "mask longformer; it takes full, causal and sliding_window"),
        ("flash4", {"mask": "causal", "seq_k": 70}, "fewer keys than queries"),
        ("cudnn_blocks", {"mask": "causal"}, "tiles are kept in part"),
        ("cudnn_blocks", {"seq": 100}, "100 queries of 64 columns"),
        ("cudnn_blocks", {"head_dim": 80}, "64, 96 or 128 columns"),
    ),
)
def test_vendors_peers_say_what_they_do_not_take(name, values, text):
    with pytest.raises(Unsupported, match=text):
        OP.PEERS[name].make(vendor_inputs(**values))


@pytest.mark.parametrize(
    "name, module", (("flash4", "flash_attn.cute"), ("cudnn_blocks", "cudnn.block_sparse_attention"))
)
def test_vendors_peers_that_are_not_installed_say_so(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Unsupported, match="is not installed"):
        OP.PEERS[name].make(vendor_inputs())


@pytest.mark.slow
def test_flex_on_flash_attention_4(monkeypatch):
    """What it gives FlexAttention, and that a graph is to hold one call of it. (This CPU stands for Hopper,
    and FlexAttention as it is for the backend.)"""
    from fusescope.ops.attention.peers import flex

    given = []

    def stand_in(q, k, v, score_mod, block_mask, enable_gqa, kernel_options):
        given.append((block_mask.BLOCK_SIZE, kernel_options))
        return flex.sdpa.flex_attention(q, k, v, score_mod, block_mask, enable_gqa=enable_gqa)

    monkeypatch.setattr(flex.sdpa, "compiled_flex", lambda: stand_in)
    with pytest.raises(Unsupported, match="FlashAttention-4 is not installed"):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        flex.refuse_other_than_hopper(torch.device("cuda:0"))
    monkeypatch.setattr(flex, "refuse_other_than_hopper", lambda device: None)
    inputs = vendor_inputs("longformer", 130)
    run = OP.PEERS["flex_flash"].make(inputs)
    assert wrong(run().contiguous(), inputs, "float16") is None
    assert given[-1] == ((128, 128), {"BACKEND": "FLASH"})
    assert run.one_call_per_graph and "FlashAttention-4" in run.backend and run.setup_ms > 0


def test_what_is_not_installed_is_listed_with_the_reason(monkeypatch):
    from importlib import metadata

    from fusescope import ops

    def reasons():
        return {i.name: i.reason for i in ops.implementations("attention", "cuda:0", "sm_90a")}

    monkeypatch.setattr(metadata, "version", lambda name: "1")
    assert reasons()["flash4"] is reasons()["cudnn_blocks"] is reasons()["flex"] is None

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert "flash-attn-4, which is not installed" in reasons()["flash4"]
    assert (
        "nvidia-cudnn-frontend, which is not installed" in reasons()["cudnn_blocks"]
        and reasons()["flex"] is None
    )


def test_flash4_is_asked_for_the_identical_mask(monkeypatch):
    """A stand-in that computes what FlashAttention's documentation says of its arguments, on the layout that
    it takes."""

    def flash_attn_func(q, k, v, causal=False, window_size=(None, None)):
        left, right = window_size
        offset = k.shape[1] - q.shape[1]
        distance = torch.arange(k.shape[1])[None, :] - torch.arange(q.shape[1])[:, None] - offset
        keep = torch.ones_like(distance, dtype=torch.bool)
        keep &= distance <= 0 if causal else keep
        keep &= distance >= -left if left is not None else keep
        keep &= distance <= right if right is not None else keep
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[3] ** -0.5
        weights = scores.masked_fill(~keep, float("-inf")).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(q.dtype), None

    monkeypatch.setitem(
        sys.modules, "flash_attn.cute", types.SimpleNamespace(flash_attn_func=flash_attn_func)
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    for mask in (
        "full",
        "causal",
        "sliding_window:left=9,right=3",
        "sliding_window:left=20,right=0",
        "sliding_window",
    ):
        for seq, seq_k in ((130, 130), (70, 130)):
            inputs = vendor_inputs(mask, seq, seq_k)
            run = OP.PEERS["flash4"].make(inputs)
            assert run.backend == "flash_attn.cute" and run.compile_ms > 0
            assert wrong(run().contiguous(), inputs, "float16") is None, (mask, seq, seq_k)


def test_cudnn_blocks_is_given_the_plans_blocks(monkeypatch):
    def forward(
        q,
        k,
        v,
        index,
        q2k_block_nums,
        sparse_block_size,
        layout,
        block_sizes=None,
        allow_empty_block_nums=False,
    ):
        assert (
            sparse_block_size == 64
            and layout == "bhsd"
            and index.dtype == q2k_block_nums.dtype == torch.int32
        )
        assert allow_empty_block_nums or int(q2k_block_nums.min()) > 0
        keep = torch.zeros(*q.shape[:3], -(-k.shape[2] // 64) * 64, dtype=torch.bool)
        for b, h, t in (
            (b, h, t) for b in range(q.shape[0]) for h in range(q.shape[1]) for t in range(index.shape[2])
        ):
            for block in index[b, h, t, : q2k_block_nums[b, h, t]].tolist():
                size = 64 if block_sizes is None else int(block_sizes[block])
                keep[b, h, 64 * t : 64 * t + 64, 64 * block : 64 * block + size] = True
        scores = (q.float() @ k.float().transpose(2, 3) * q.shape[3] ** -0.5).masked_fill(
            ~keep[..., : k.shape[2]], float("-inf")
        )
        return {"o_tensor": (scores.softmax(-1).nan_to_num() @ v.float()).to(q.dtype)}

    module = types.SimpleNamespace(block_sparse_attention_forward=forward)
    monkeypatch.setitem(sys.modules, "cudnn", types.ModuleType("cudnn"))
    monkeypatch.setitem(sys.modules, "cudnn.block_sparse_attention", module)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    live = (
        torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 1]], dtype=torch.bool)
        .repeat_interleave(64, 0)
        .repeat_interleave(64, 1)
    )
    for columns in (192, 170):
        inputs = vendor_inputs("full", 192, columns)
        mask = masks.from_dense(live[:, :columns].numpy())
        inputs |= {"mask": mask, "plan": prepare(mask, 192, columns)}
        run = OP.PEERS["cudnn_blocks"].make(inputs)
        assert wrong(run().contiguous(), inputs, "float16") is None
    assert wrong(OP.PEERS["cudnn_blocks"].make(full := vendor_inputs())(), full, "float16") is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ("flash4", "cudnn_blocks"))
def test_vendors_peers_where_they_are_installed(name):
    ran = 0
    for mask in ("full", "causal", "sliding_window", "document:lengths=64+64"):
        inputs = OP.inputs(case(128, 128, mask, head_dim=64), "float16", "cuda", 0)
        try:
            run = OP.PEERS[name].make(inputs)
        except Unsupported as error:
            if "is not installed" in str(error):
                pytest.skip(str(error))
            continue
        ran += 1
        assert wrong(run().contiguous(), inputs, "float16") is None, mask
    assert ran >= 2


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
