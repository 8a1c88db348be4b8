"""Which kernel auto stands for: the rule, the fit that ships, and a kernel that is dropped in."""

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
import torch

from fusescope import masks, ops
from fusescope.core.paths import ROOT
from fusescope.kernels import report
from fusescope.ops.attention import prepare
from fusescope.ops.attention.dispatch import candidates, choice, cost_model, counts, fitting
from fusescope.ops.attention.dispatch.candidates import Ladder
from fusescope.ops.attention.work import parts

OP = ops.load("attention")


def work(**values):
    return counts.counts_of_case(OP.validate({"batch": 4, "heads": 8, "head_dim": 64} | values), 132)


@pytest.fixture
def an_h200(monkeypatch):
    """As far as the chooser asks; tensors stay on the CPU."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr(candidates, "capability", lambda index: (9, 0))
    monkeypatch.setattr(cost_model, "own_folder", lambda: ROOT / "nowhere")
    monkeypatch.setattr(report, "state", lambda: {"attention": {}})


def test_the_rule_without_a_fit(an_h200, monkeypatch):
    """By capability and dtype, with what the sources say that their kernels take."""

    def by_rule(
        capability, dtype, seq_q=512, live=100.0, tma=True, positive=True, one_mask=True, gain=1.0, bias=False
    ):
        monkeypatch.setattr(candidates, "capability", lambda index: capability)
        ladder = candidates.ladder(0, dtype, 64, tma, positive, True, one_mask, bias=bias)
        return choice.by_rule(ladder, seq_q, live, 120.0, gain)

    half, single = torch.float16, torch.float32
    assert by_rule((9, 0), half, positive=False) == "v3_hopper"
    assert by_rule((9, 0), half, positive=False, bias=True) == "v3_hopper"
    assert by_rule((9, 0), half, bias=True) == "v4_scheduled"
    assert by_rule((9, 0), half) == "v4_scheduled"
    assert by_rule((9, 0), half, gain=2.0) == "v5_parts"
    assert by_rule((9, 0), half, gain=2.0, one_mask=False) == "v4_scheduled"
    assert by_rule((9, 0), half, gain=2.0, bias=True) == "v5_parts"
    assert by_rule((9, 0), half, gain=2.0, one_mask=False, bias=True) == "v4_scheduled"
    assert by_rule((9, 0), half, tma=False) == "v2_blockwise"
    assert by_rule((8, 0), half) == "v2_blockwise"
    for capability, dtype in (((7, 5), half), ((9, 0), single)):  # no tensor cores for these
        assert by_rule(capability, dtype) == "v2_blockwise_fp32"
        assert by_rule(capability, dtype, live=10.0) == "v1_rowwise"
    for seq_q, live in ((8, 100.0), (512, 1.5)):
        assert by_rule((9, 0), half, seq_q=seq_q, live=live) == "v1_rowwise"
    assert choice.by_rule(Ladder(None, None, "v6_items", True), 512, 100.0, 120.0) == "v6_items"


@pytest.mark.slow
def test_a_kernel_that_is_dropped_in_is_a_candidate(an_h200, tmp_path, monkeypatch):
    """One file with directives: without prices it is taken where no other kernel takes the inputs, and a fit
    to its records makes it compete."""
    tree, alone = tmp_path / "cuda", tmp_path / "alone"
    shutil.copytree(ROOT / "cuda", tree)
    kernel = (
        "// Wide.\n// archs: sm_90a\n// expects: HGMMA\n// takes: fp16, tma\n// tiles: 2 per block, "
        "3 blocks per SM\n"
    )
    (tree / "attention" / "v6_wide.cu").write_text(kernel)
    shutil.copytree(tree, alone)
    for file in (alone / "attention").glob("v*.cu"):
        if file.stem != "v6_wide":
            file.write_text("// Others.\n// takes: fp32\n")

    facts = (64, True, True)
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tree))
    for dtype, accepted in ((torch.float16, True), (torch.bfloat16, False)):
        known = candidates.inputs(dtype, *facts)
        assert accepted == (
            "v6_wide" in [v.name for v in candidates.built("attention", 0) if v.accepts(known)]
        )
    assert "v6_wide" not in candidates.ladder(0, torch.float16, *facts), "others take these, and have prices"
    monkeypatch.setenv("FUSESCOPE_CUDA", str(alone))
    assert candidates.ladder(0, torch.float16, *facts) == Ladder(None, "v6_wide", None, True)
    made_up = [work(batch=b, seq=s) for b in (16, 32, 64) for s in (512, 768, 1024)]
    rows = [("v6_wide", "float16", w, 2 + w.tiles / 132) for w in made_up]
    made = fitting.fit("GPU", 132, rows)
    assert made.choose("float16", made_up[0], ["v6_wide"]) == "v6_wide"
    assert counts.counts(64, 12, 64, 64, 1, 64 * 64, 1, 0, 1).features("v6_wide", 128)[-1] == 1.0, (
        "768 = 128 x 6"
    )


def test_what_ships_prices_every_kernel_of_the_gpu(an_h200):
    prices = choice._fit.__wrapped__(0).prices
    for kind in ("16 bit", "16 bit, some tiles", "16 bit, few tiles"):
        assert {"v5_parts", "v4_scheduled", "v3_hopper"} <= set(prices[kind])
    assert "v6_triples" in prices["16 bit, wide heads"]


def test_a_mask_in_parts_is_taken_so_where_that_is_predicted_to_be_faster(an_h200):
    """A dilated mask in strided-permuted order has half the steps; of few short lists none is worth blocks
    that stay."""
    fit = choice._fit.__wrapped__(0)
    names = [v.name for v in candidates.built("attention", 0)]
    for mask, batch, seq, chosen in (
        ("dilated", 16, 2048, "v5_parts"),
        ("longformer", 1, 4096, "v5_parts"),
        ("sliding_window", 1, 512, "v4_scheduled"),
        ("full", 4, 4096, "v6_triples"),
    ):
        todo = work(batch=batch, seq=seq, heads=12, mask=mask, head_dim=128 if chosen == "v6_triples" else 64)
        assert fit.choose("float16", todo, names) == chosen
        without = fit.choose("float16", todo._replace(in_parts=()), names)
        assert without not in ("v5_parts", "v6_triples"), "what is not counted is not chosen"


def test_with_a_bias_work_items_are_taken_where_they_suit_it(an_h200, monkeypatch):
    """Tiles are fetched ahead of keys in their own order, not of keys by a stride. v6 takes no bias."""
    fit = choice._fit.__wrapped__(0)
    monkeypatch.setattr(choice, "_fit", lambda index: fit)
    monkeypatch.setattr(choice, "tma_takes", lambda tensor: True)
    for text, head_dim, chosen, suits in (
        ("sliding_window:left=128,right=128", 64, "v5_parts", {"tiles": True, "elements": True}),
        ("strided:window=128,stride=16", 64, "v5_parts", {"tiles": False, "elements": True}),
        ("causal", 128, "v6_triples", {"tiles": True, "elements": False}),
    ):
        plan = prepare(masks.parse(text), 2048, 2048)
        plan = dataclasses.replace(plan, schedule=plan.buffer)  # as on a device of compute capability 9.0
        made = {g: parts.of(plan, 16, 12, head_dim, parts.resident(132, head_dim, g), g) for g in (2, 3)}
        monkeypatch.setattr(choice, "_items", lambda plan, q, k, group, made=made: made[group])
        q = SimpleNamespace(
            dtype=torch.float16, shape=(16, 12, 2048, head_dim), device=torch.device("cuda:0")
        )
        assert choice.choose(q, q, q, plan) == chosen
        for way in ("tiles", "elements"):
            best = "v5_parts" if suits[way] else "v4_scheduled"
            assert choice.choose(q, q, q, plan, bias=way) == best
            assert choice.choose_scored(q, q, q, plan, bias=way) == best
            assert choice.choose_scored(q, q, q, plan, expressed=True, bias=way) == "v4_scheduled"


def test_with_a_bias_the_last_of_the_ladder_is_taken_before_others_on_tiles(an_h200, monkeypatch):
    """Prices are of calls without a bias. What they say of the kernel that walks keys one by one holds."""
    fit = choice._fit.__wrapped__(0)
    monkeypatch.setattr(choice, "_fit", lambda index: fit)
    monkeypatch.setattr(choice, "_items", lambda *_: None)
    monkeypatch.setattr(choice, "tma_takes", lambda tensor: True)
    shape, device = (1, 12, 128, 64), torch.device("cuda:0")
    q = SimpleNamespace(dtype=torch.float16, shape=shape, device=device)
    assert choice.choose(q, q, q, None) == "v3_hopper"
    assert choice.choose(q, q, q, None, bias="tiles") == "v4_scheduled"
    assert choice.choose(q, q, q, None, positive_scale=False, bias="tiles") == "v3_hopper"
    unscheduled = prepare(torch.ones(128, 128, dtype=torch.bool).tril(), 128, 128)
    assert choice.choose(q, q, q, unscheduled, bias="tiles") == "v3_hopper"
    alone = prepare(torch.eye(128, dtype=torch.bool), 128, 128)
    assert choice.choose(q, q, q, alone, bias="tiles") == choice.choose(q, q, q, alone)
    assert choice.choose_scored(q, q, q, None, bias="tiles") == "v4_scheduled"
    assert choice.choose_scored(q, q, q, None, positive_scale=False, bias="tiles") == "v2_blockwise"


@pytest.mark.gpu
def test_auto_on_a_gpu_takes_a_kernel_that_takes_the_inputs():
    for dtype in OP.DTYPES:
        for contiguous in (True, False):
            inputs = OP.inputs(
                OP.validate({"seq": 300, "mask": "causal", "head_dim": 40}), dtype, "cuda", 0, contiguous
            )
            with torch.no_grad():
                assert OP.call(inputs, "auto").shape == (1, 12, 300, 40)
