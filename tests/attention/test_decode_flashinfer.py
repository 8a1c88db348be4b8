"""FlashInfer's peers of decoding: what they give the package, against a stand-in that computes what its
documentation says of its arguments; what they refuse; and the package itself on a GPU."""

import sys
import types
from typing import ClassVar

import pytest
import torch

from fusescope import ops
from fusescope.core.errors import Unsupported
from fusescope.measure.checking.check import compare
from fusescope.measure.timing.placement import Placement

OP = ops.load("attention_decode")
NAMES = ("flashinfer", "flashinfer_tensor", "flashinfer_xqa")
SMALL = {"batch": 3, "heads": 8, "kv_heads": 2, "seq_max": 192, "head_dim": 64, "lengths": "192+1+97"}
CASES = (
    {},
    {"lengths": "64+0+65"},
    {"window": 9},
    {"window": 1, "softcap": 3.0},
    {"softcap": 30.0, "head_dim": 128, "heads": 2},
    {"seq_max": 80, "lengths": "80+16+17"},  # pages of 16 keys
    {"seq_max": 72, "lengths": "72+8+9"},  # of 8
    {"seq_max": 65, "lengths": "65+2+64"},  # and of 1
    {"page": "16"},
    {"page": "32", "lengths": "64+0+31", "window": 40},
    {"batch": 1, "seq_max": 512, "lengths": "400"},
)


def made(values=()):
    """(inputs, values) of a case whose cache is NaN beyond the lengths where it is padded."""
    values = OP.validate(SMALL | dict(values))
    inputs = OP.inputs(values, "float16", "cpu", 0)
    if "block_table" not in inputs:
        for i, n in enumerate(inputs["lengths"].tolist()):
            inputs["k"][i, :, n:] = inputs["v"][i, :, n:] = torch.nan
    return inputs, values


def wrong(out, inputs, values, dtype="float16"):
    return compare(out, OP.reference(inputs), OP.tolerance(values, dtype)).reason


def attend(q, k, v, window_left, cap, scale):
    """One token over all given keys; q (H, D), k and v (H_kv, S, D)."""
    k, v = (t.float().repeat_interleave(q.shape[0] // k.shape[0], 0) for t in (k, v))
    scores = (k @ q.float()[:, :, None])[..., 0] * scale
    scores = cap * torch.tanh(scores / cap) if cap else scores
    if window_left >= 0:
        scores[:, : max(k.shape[1] - 1 - window_left, 0)] = -torch.inf
    return (scores.softmax(1)[:, None] @ v)[:, 0].to(q.dtype)


def keys(cache, pages, length):
    """The first keys of pages (H_kv, page, D) one behind the other."""
    return cache[pages.long()].transpose(0, 1).flatten(1, 2)[:, :length]


class Wrapper:
    seen: ClassVar[list["Wrapper"]] = []

    def __init__(self, workspace, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False):
        assert workspace.dtype == torch.uint8 and not workspace.any() and kv_layout == "HND"
        assert not use_cuda_graph
        self.tensor_cores, self.resolved_backend, self.plans = use_tensor_cores, "fa2", 0
        Wrapper.seen.append(self)

    def plan(self, indptr, indices, last_page_len, heads, kv_heads, columns, page, **options):
        assert all(t.dtype == torch.int32 for t in (indptr, indices, last_page_len))
        assert indptr[0] == 0 and indptr[-1] == len(indices) and len(indptr) == len(last_page_len) + 1
        used = indptr.diff() > 0
        assert ((last_page_len[used] >= 1) & (last_page_len[used] <= page)).all()
        assert options["q_data_type"] == options["kv_data_type"] == torch.float16
        self.lists, self.sizes, self.options = (indptr, indices, last_page_len), (heads, kv_heads), options
        self.page, self.columns, self.plans = page, columns, self.plans + 1

    def run(self, q, caches):
        (k, v), (indptr, indices, last), o = caches, self.lists, self.options
        assert q.shape[1:] == (self.sizes[0], self.columns)
        assert k.shape[1:] == (self.sizes[1], self.page, self.columns) and k.stride() == v.stride()
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        for i in range(len(last)):
            pages = indices[indptr[i] : indptr[i + 1]]
            if not len(pages):
                out[i] = torch.nan  # what a kernel writes there is not documented
                continue
            n = (len(pages) - 1) * self.page + int(last[i])
            given = o["window_left"], o["logits_soft_cap"], o["sm_scale"]
            out[i] = attend(q[i], keys(k, pages, n), keys(v, pages, n), *given)
        return out


def xqa(query, kv_cache, workspace_buffer, block_tables, seq_lens, max_seq_len, **options):
    (k, v), page = kv_cache, kv_cache[0].shape[2]
    assert options.pop("kv_layout") == "HND" and options.pop("bmm2_scale") == 1.0
    assert page in (16, 32, 64, 128) and max_seq_len == block_tables.shape[1] * page
    assert block_tables.dtype == seq_lens.dtype == torch.int32 and block_tables.is_contiguous()
    assert (
        query.is_contiguous() and not workspace_buffer.any() and set(options) == {"bmm1_scale", "window_left"}
    )
    rows = []
    for q, pages, n in zip(query, block_tables, seq_lens.tolist()):
        given = options["window_left"], None, options["bmm1_scale"]
        rows.append(attend(q, keys(k, pages, n), keys(v, pages, n), *given))
    return torch.stack(rows)


@pytest.fixture
def package(monkeypatch):
    """The stand-in as the package; the wrappers that were made."""
    module, decode = types.ModuleType("flashinfer"), types.ModuleType("flashinfer.decode")
    module.__version__, module.BatchDecodeWithPagedKVCacheWrapper = "0.7", Wrapper
    decode.xqa_batch_decode_with_kv_cache, module.decode = xqa, decode
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setitem(sys.modules, "flashinfer.decode", decode)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(Wrapper, "seen", [])
    return Wrapper.seen


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_package_is_given_the_case(name, case, package):
    inputs, values = made(case)
    if name == "flashinfer_xqa":
        odd = values["seq_max"] % 16 and "page" not in values
        if "softcap" in values or odd or not inputs["lengths"].min():
            with pytest.raises(Unsupported, match="XQA does not take this: "):
                OP.PEERS[name].make(inputs)
            return
    run = OP.PEERS[name].make(inputs)
    assert wrong(run(), inputs, values) is None
    inputs["q"].neg_()
    for tensor in (inputs["k"], inputs["v"]):
        tensor.mul_(0.5)
    assert wrong(run(), inputs, values) is None, "the next call sees new values"
    assert run.backend.startswith("flashinfer 0.7, ") and run.compile_ms >= 0 and run.setup_bytes > 128 << 20
    if package:
        plans = package[0].plans
        run()
        assert package[0].plans == plans, "plan() is no part of a call"
        assert run.setup_ms > 0 and package[0].tensor_cores == ("tensor cores (fa2)" in run.backend)


def test_a_padded_cache_is_read_in_place(package):
    inputs, _ = made({"batch": 2, "seq_max": 256, "lengths": "256+129"})
    OP.PEERS["flashinfer"].make(inputs)
    assert package[0].page == 64 and package[0].lists[1].tolist() == [0, 1, 2, 3, 8, 9, 10]
    assert package[0].lists[0].tolist() == [0, 4, 7] and package[0].lists[2].tolist() == [64, 1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ({}, {"page": "16"}), ids=str)
def test_inputs_move_between_calls(name, case, package):
    inputs, values = made(case)
    run, before = OP.PEERS[name].make(inputs), [inputs[n].detach() for n in "qkv"]
    Placement(inputs, "cpu", 0)()
    for tensor in before:
        tensor.fill_(torch.nan)
    assert wrong(run(), inputs, values) is None


def test_heads_side_by_side_are_read_in_place(package):
    """(B, S, H_kv, D) in memory, as other libraries keep caches."""
    inputs, values = made()
    for name in ("k", "v"):
        inputs[name] = inputs[name].transpose(1, 2).contiguous().transpose(1, 2)
    for name in NAMES:
        assert wrong(OP.PEERS[name].make(inputs)(), inputs, values) is None
    assert package[0].lists[1].tolist() == [0, 1, 2, 3, 6, 7]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "case, text",
    (
        ({"dtype": "float32"}, "float32; it takes float16 and bfloat16"),
        ({"tokens": 3, "lengths": "64+9+33"}, "3 query tokens per sequence; this peer takes one"),
        ({"head_dim": 80}, "heads of 80 columns; it takes 64, 128 and 256"),
        ({"sinks": "yes"}, "attention sinks"),
        ({"alibi": "yes"}, "ALiBi by given slopes"),
        ({"bias": "head"}, "a bias"),
        ({"kv_dtype": "fp8"}, "an fp8 cache with a scale per KV head"),
        ({"contiguous": False}, "an address or stride that is not a multiple of 16 bytes"),
    ),
)
def test_what_is_not_taken_is_named(name, case, text, package):
    case = dict(case)
    dtype, contiguous = case.pop("dtype", "float16"), case.pop("contiguous", True)
    inputs = OP.inputs(OP.validate(SMALL | case), dtype, "cpu", 0, contiguous)
    with pytest.raises(Unsupported, match=f"FlashInfer.* does not take this: {text}"):
        OP.PEERS[name].make(inputs)


def test_what_one_of_them_does_not_take_is_named(package):
    inputs, values = made({"heads": 10})
    with pytest.raises(Unsupported, match="5 query heads per KV head; it takes 1, 2, 3, 4, 6, 8 and 16"):
        OP.PEERS["flashinfer"].make(inputs)
    assert wrong(OP.PEERS["flashinfer_tensor"].make(inputs)(), inputs, values) is None
    inputs, _ = made({"page": "256", "seq_max": 256})
    with pytest.raises(Unsupported, match="pages of 256 keys; it takes 16, 32, 64 and 128"):
        OP.PEERS["flashinfer_xqa"].make(inputs)
    inputs, _ = made()
    inputs["v"] = inputs["v"].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(Unsupported, match="keys and values with different strides"):
        OP.PEERS["flashinfer"].make(inputs)
    inputs, _ = made({"page": "16"})
    inputs["block_table"][1, 0] = -1
    with pytest.raises(Unsupported, match="pages that are not in the cache"):
        OP.PEERS["flashinfer_xqa"].make(inputs)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_package_refuses_is_named(name, package, monkeypatch):
    def refuse(*args, **options):
        raise ValueError("no such head size\nmore")

    monkeypatch.setattr(Wrapper, "plan", refuse)
    monkeypatch.setattr(sys.modules["flashinfer.decode"], "xqa_batch_decode_with_kv_cache", refuse)
    with pytest.raises(Unsupported, match=r"FlashInfer.* does not take this: no such head size$"):
        OP.PEERS[name].make(made()[0])


@pytest.mark.parametrize("name", NAMES)
def test_without_the_package(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(Unsupported, match=r"not installed \(pip install flashinfer-python\)"):
        OP.PEERS[name].make(made()[0])
    monkeypatch.setattr(ops, "installed", lambda package: package != "flashinfer-python")
    reasons = {i.name: i.reason for i in ops.implementations("attention_decode", "cuda:0", "sm_90a")}
    assert reasons[name] == f"{name} needs the package flashinfer-python, which is not installed"


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "case, dtype",
    (
        ({"batch": 1, "lengths": "192"}, "float16"),
        ({"lengths": "64+0+65"}, "float16"),
        ({"seq_max": 4096, "lengths": "4096+1+777"}, "float16"),
        ({"seq_max": 4096, "lengths": "4096+1+777"}, "bfloat16"),
        ({"seq_max": 1024, "lengths": "drawn", "page": "16", "batch": 40}, "float16"),
        ({"seq_max": 1000, "lengths": "drawn"}, "float16"),
        ({"heads": 12, "kv_heads": 12, "head_dim": 64, "seq_max": 1024, "lengths": "drawn"}, "float16"),
        ({"seq_max": 1024, "lengths": "1024+100+333", "window": 128, "softcap": 30.0}, "float16"),
        ({"seq_max": 1024, "lengths": "1024+100+333", "window": 128}, "float16"),
    ),
    ids=str,
)
def test_the_package_itself(name, case, dtype):
    """Against float64, eagerly and replayed in a CUDA graph after the inputs changed. Each dtype, head size
    and kind of option is compiled once, up to two minutes."""
    pytest.importorskip("flashinfer")
    values = OP.validate(SMALL | {"head_dim": 128} | case)
    inputs = OP.inputs(values, dtype, "cuda", 0)
    try:
        run = OP.PEERS[name].make(inputs)
    except Unsupported as error:
        lacks = ("soft-cap", "S_max", "without a key")
        assert name == "flashinfer_xqa" and any(what in str(error) for what in lacks)
        return
    assert wrong(run(), inputs, values, dtype) is None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first, second = run(), run()
    inputs["q"].neg_()
    inputs["v"].mul_(2)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert wrong(first, inputs, values, dtype) is None
    assert wrong(second, inputs, values, dtype) is None
