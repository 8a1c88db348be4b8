"""The chooser: its fit on times made up from known prices, on the recorded runs against the best measured
kernel, and its verb."""

import json
import shutil

import numpy as np
import pytest
import torch

from fusescope import cli, masks, ops
from fusescope.core.paths import ROOT
from fusescope.core.records import Record, Time, Times
from fusescope.kernels import report
from fusescope.masks import layout
from fusescope.ops.attention import prepare
from fusescope.ops.attention.dispatch import candidates, choice, cost_model, counts, fitting
from fusescope.ops.attention.dispatch.candidates import Ladder
from fusescope.ops.attention.work import parts
from fusescope.store import folder

OP = ops.load("attention")
RECORDED = sorted((ROOT / "profiles" / "recorded").glob("*-bench-*"))


def work(**values):
    return counts.counts_of_case(OP.validate({"batch": 4, "heads": 8, "head_dim": 64} | values), 132)


def short(record):
    """Counting the tiles of a mask of 16384 x 16384 takes seconds."""
    return record.op == "attention" and record.case["seq"] * record.case["seq_k"] <= 1 << 24


def cases():
    masks = ("full", "causal", "sliding_window", "longformer", "strided")
    return [
        work(batch=b, seq=s, mask=m, head_dim=d)
        for b in (1, 8, 64)
        for s in (128, 256, 512)
        for m in masks
        for d in (64, 128)
    ]


def test_work_counts_what_the_mask_says():
    """Against the count of tiles that pictures of masks and costs go by; in parts as the plan's own work."""
    for text in ("full", "causal", "bigbird", "document:lengths=100+100"):
        values = OP.validate({"batch": 3, "heads": 2, "seq": 200, "mask": text})
        cut = layout.tiles(masks.parse(text), 200, 200)
        figures = (1, cut.kept, cut.full, cut.partial, int(cut.live_map.sum(-1).max()))
        counted = counts.counts_of_case(values, 132)
        assert counts.counts(3, 2, 200, 64, *figures) == counted._replace(in_parts=None)
        plan = prepare(masks.parse(text), 200, 200)
        assert counted.in_parts == parts.of(plan, 3, 2, 64, 264).figures
    for left_out in ({"mask": "causal", "head_dim": 136}, {"mask": "padding:lengths=100+7", "batch": 2}):
        assert counts.counts_of_case(OP.validate({"seq": 200} | left_out), 132).in_parts is None


def test_figures_of_a_work():
    """Strided masks are two parts; a list that is cut leaves partial results; two copies are twice the
    blocks."""
    plan = prepare(
        ops.load("attention").inputs(OP.validate({"seq": 4096, "mask": "strided"}), "float32", "cpu", 0)[
            "mask"
        ],
        4096,
        4096,
    )
    one, two = (parts.of(plan, batch, 64, 64, 16).figures for batch in (1, 2))
    assert one.parts == 2 and 0 < one.later < one.blocks and one.steps > 0
    assert two == one._replace(
        steps=2 * one.steps, blocks=2 * one.blocks, later=2 * one.later, pieces=2 * one.pieces
    )
    cut = parts.of(prepare(None, 4096, 4096), 1, 1, 64, 264)
    assert cut.figures.joins == 1 and cut.figures.pieces > 0 and cut.gain > 1.4
    assert cut.figures.steps == 64 / 2 * 32, "every step is one of both query tiles"


def test_a_fit_finds_the_prices_that_times_were_made_of():
    prices = {
        "v1_a": (2, 30, 0, 0, 0.5, 0, 1, 0),
        "v2_b": (4, 0, 0.2, 0.05, 0, 0.4, 0, 0),
        "v5_parts": (5, 8, 6, 1, 0.5, 2, 3, 1),
    }
    rows = [
        (impl, "float16", w, float(np.dot(w.features(impl, 132), p)))
        for impl, p in prices.items()
        for w in cases()
    ]
    made = fitting.fit("GPU", 132, rows)
    assert set(made.prices) == {
        "16 bit" + more for more in ("", ", few tiles", ", some tiles", ", wide heads")
    }, "all regimes are fitted"
    for (
        impl,
        dtype,
        w,
        us,
    ) in rows:  # where there are many tiles the longest list never binds, and two prices add up
        assert made.microseconds(dtype, w)[impl] == pytest.approx(us, rel=1e-2)
    assert fitting.regret(made, rows) == pytest.approx([1.0] * len({w for _, _, w, _ in rows}), abs=1e-6)
    assert (
        made.choose("float32", cases()[0], prices) is None
        and made.choose("bfloat16", cases()[0], ["v2_b"]) == "v2_b"
    )
    with pytest.raises(ValueError, match="at least 6 records"):
        fitting.fit("GPU", 132, rows[:5])


def test_what_was_measured_to_be_faster_is_taken():
    """Of works like all others one is an exception, which prices cannot say."""
    rows = [
        (impl, "float16", w, 2 + scale * w.tiles / 132)
        for impl, scale in (("v1_a", 0.5), ("v2_b", 1))
        for w in cases()
    ]
    odd = sorted((w for w in cases() if w.blocks > 4 * 132 and w.panels == 1), key=lambda w: w.tiles)[6]
    rows = [(impl, dtype, w, us / 2.2 if (impl, w) == ("v2_b", odd) else us) for impl, dtype, w, us in rows]
    made = fitting.fit("GPU", 132, rows)
    assert (
        next(iter(made.microseconds("float16", odd))) == "v1_a"
        and made.choose("bfloat16", odd, ["v1_a", "v2_b"]) == "v2_b"
    )
    assert [list(works) for works in made.corrections.values()] == [[odd.key]]
    assert made.choose("float16", odd, ["v1_a"]) == "v1_a", "it may not be there"
    other = odd._replace(tiles=odd.tiles - 1)
    assert made.choose("float16", other, ["v1_a", "v2_b"]) == "v1_a"


def test_prices_are_never_negative():
    generator = np.random.default_rng(0)
    for _ in range(50):
        a, b = generator.normal(size=(12, 5)), generator.normal(size=12)
        x = fitting.non_negative(a, b)
        gradient = a.T @ (a @ x - b)  # Karush, Kuhn, Tucker: zero where x is positive, not negative elsewhere
        assert (x >= 0).all() and (gradient > -1e-6).all() and np.allclose(gradient[x > 0], 0, atol=1e-6)


def test_on_what_was_recorded_it_is_within_5_percent_of_the_best_kernel():
    by_device = {}
    for home in RECORDED:
        about = folder.read(home)
        device = (about.environment.get("device_name"), about.environment.get("sms"))
        by_device.setdefault(device, []).extend(r for r in folder.records(home) if short(r))
    checked = 0
    for (device, sms), records in by_device.items():
        rows = fitting.measured(records, sms)
        if len(rows) < 30:
            continue
        ratios = fitting.cross_validated(device, sms, rows)
        checked += len(ratios)
        assert np.mean(np.array(ratios) <= 1.05) >= 0.95, (device, sorted(ratios)[-5:])
    assert checked >= 12


def test_what_ships_can_be_read_and_names_its_runs():
    files = sorted(cost_model.SHIPPED.glob("*.json"))
    assert files
    for file in files:
        made, where = cost_model.load(json.loads(file.read_text())["device"])
        assert (
            made.runs and made.prices["16 bit"] and (where == file or where.parent == cost_model.own_folder())
        )


def test_a_fit_made_here_comes_first_and_a_broken_one_counts_as_none(tmp_path, monkeypatch):
    monkeypatch.setattr(cost_model, "own_folder", lambda: tmp_path)
    shipped, _ = cost_model.load("NVIDIA H200")
    own = cost_model.Fit(
        "NVIDIA H200", 1, {"16 bit": {"v1_rowwise": [1.0] * len(counts.FEATURES)}}, (), {}, 6
    )
    file = cost_model.save(own, tmp_path)
    assert cost_model.load("NVIDIA H200")[0].sms == 1
    for text in (
        "{",
        json.dumps({"device": "NVIDIA H200"}),
        json.dumps(json.loads(file.read_text()) | {"prices": {"16 bit": {"v1": [1]}}}),
    ):
        file.write_text(text)
        assert cost_model.load("NVIDIA H200")[0] == shipped
    assert cost_model.load("no such device") is None


def test_the_rule_without_a_fit(an_h200, monkeypatch):
    """By capability and dtype, with what the sources say that their kernels take."""

    def by_rule(capability, dtype, seq_q=512, live=100.0, tma=True, plain=True, one_mask=True, gain=1.0):
        monkeypatch.setattr(candidates, "capability", lambda index: capability)
        ladder = candidates.ladder(0, dtype, 64, tma, plain, True, one_mask)
        return choice.by_rule(ladder, seq_q, live, 120.0, gain)

    half, single = torch.float16, torch.float32
    assert by_rule((9, 0), half, plain=False) == "v3_hopper"
    assert by_rule((9, 0), half) == "v4_scheduled"
    assert by_rule((9, 0), half, gain=2.0) == "v5_parts"
    assert by_rule((9, 0), half, gain=2.0, one_mask=False) == "v4_scheduled"
    assert by_rule((9, 0), half, gain=2.0, plain=False) == "v3_hopper"
    assert by_rule((9, 0), half, tma=False) == "v2_blockwise"
    assert by_rule((8, 0), half) == "v2_blockwise"
    for capability, dtype in (((7, 5), half), ((9, 0), single)):  # no tensor cores for these
        assert by_rule(capability, dtype) == "v2_blockwise_fp32"
        assert by_rule(capability, dtype, live=10.0) == "v1_rowwise"
    for seq_q, live in ((8, 100.0), (512, 1.5)):
        assert by_rule((9, 0), half, seq_q=seq_q, live=live) == "v1_rowwise"
    assert choice.by_rule(Ladder(None, None, "v6_items", True), 512, 100.0, 120.0) == "v6_items"


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
    for file in (alone / "attention").glob("v[1-5]*.cu"):
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
    rows = [("v6_wide", "float16", w, 2 + w.tiles / 132) for w in cases()]
    made = fitting.fit("GPU", 132, rows)
    assert made.choose("float16", cases()[0], ["v6_wide"]) == "v6_wide"
    assert counts.counts(64, 12, 64, 64, 1, 64 * 64, 1, 0, 1).features("v6_wide", 128)[-1] == 1.0, (
        "768 = 128 x 6"
    )


@pytest.fixture
def an_h200(monkeypatch):
    """As far as the chooser asks; tensors stay on the CPU."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H200")
    monkeypatch.setattr(candidates, "capability", lambda index: (9, 0))
    monkeypatch.setattr(cost_model, "own_folder", lambda: ROOT / "nowhere")
    monkeypatch.setattr(report, "state", lambda: {"attention": {}})


def test_what_ships_prices_every_kernel_of_the_gpu(an_h200):
    prices = choice._fit.__wrapped__(0).prices
    for kind in ("16 bit", "16 bit, some tiles", "16 bit, few tiles"):
        assert {"v5_parts", "v4_scheduled", "v3_hopper"} <= set(prices[kind])


def test_a_mask_in_parts_is_taken_so_where_that_is_predicted_to_be_faster(an_h200):
    """A dilated mask in order of residues has half the steps; of few short lists none is worth blocks that
    stay."""
    fit = choice._fit.__wrapped__(0)
    names = [v.name for v in candidates.built("attention", 0)]
    for mask, batch, seq, chosen in (
        ("dilated", 16, 2048, "v5_parts"),
        ("longformer", 1, 4096, "v5_parts"),
        ("sliding_window", 1, 512, "v4_scheduled"),
    ):
        todo = work(batch=batch, seq=seq, heads=12, mask=mask)
        assert fit.choose("float16", todo, names) == chosen
        without = fit.choose("float16", todo._replace(in_parts=None), names)
        assert without != "v5_parts", "what is not counted is not chosen"


def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cost_model, "own_folder", lambda: tmp_path)
    runs = [
        str(home)
        for home in RECORDED
        if (found := folder.records(home))[0].op == "attention" and all(map(short, found))
    ]
    words = [
        "chooser",
        "--json",
        "--fit",
        *runs,
        "--device-name",
        "NVIDIA H200",
        "--case",
        "batch=16,seq=256,mask=causal",
    ]
    assert cli.main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["held_out"]["within_5_percent"] >= 0.95 and data["saved"].startswith(str(tmp_path))
    times = data["predictions"][0]["microseconds"]
    assert data["predictions"][0]["chosen"] == min(times, key=times.get)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(
        json.loads((ROOT / "backend/fusescope/schemas/chooser.json").read_text())
    ).validate(data)
    assert (
        cli.main(["chooser", "--device-name", "NVIDIA H200"]) == 0
        and "prices in us" in capsys.readouterr().out
    )
    assert (
        cli.main(["chooser", "--device-name", "GTX 1"]) == 1
        and "there is no fit for 'GTX 1'" in capsys.readouterr().err
    )
    assert cli.main(["chooser", "--ship"]) == 2


@pytest.mark.gpu
def test_auto_on_a_gpu_takes_a_kernel_that_takes_the_inputs():
    for dtype in OP.DTYPES:
        for contiguous in (True, False):
            inputs = OP.inputs(
                OP.validate({"seq": 300, "mask": "causal", "head_dim": 40}), dtype, "cuda", 0, contiguous
            )
            with torch.no_grad():
                assert OP.call(inputs, "auto").shape == (1, 12, 300, 40)


def test_of_a_kernel_and_case_only_the_newest_source_counts():
    def record(ms, source, seq):
        values = OP.validate({"seq": seq})
        times = Times(graph=Time(ms, ms, ms, 10, True))
        return Record(
            "attention", "v1_a", values, "float16", "cuda:0", "ok", time_ms=times, source_hash=source
        )

    rows = fitting.measured(
        [
            record(1.0, "old", 64),
            record(2.0, "new", 64),
            record(3.0, "old", 128),
            record(4.0, "new", 128),
            record(5.0, "old", 256),
        ],
        132,
    )
    assert [us for *_, us in rows] == [2000.0, 4000.0, 5000.0], "nothing newer is known of the last"


def test_records_of_a_kernel_in_parts_count_where_it_can_be_chosen():
    def record(**values):
        times = Times(graph=Time(1.0, 1.0, 1.0, 10, True))
        return Record(
            "attention",
            "v5_parts",
            OP.validate(values),
            "float16",
            "cuda:0",
            "ok",
            time_ms=times,
            source_hash="now",
        )

    rows = fitting.measured([record(seq=64), record(seq=64, batch=2, mask="padding:lengths=60+7")], 132)
    assert [done.blocks for _, _, done, _ in rows] == [12]
