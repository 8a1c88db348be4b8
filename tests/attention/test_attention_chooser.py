"""The chooser: its fit on times made up from known prices, on the recorded runs against the best measured kernel, and its verb."""

import json

import numpy as np
import pytest
import torch

from backend import cli, ops
from backend.core.paths import ROOT
from backend.core.records import Record, Time, Times
from backend.ops.attention import chooser, choosing, prepare
from backend.store import folder

OP = ops.load("attention")
RECORDED = sorted((ROOT / "profiles" / "recorded").glob("*-bench-*"))


def work(**values):
    return chooser.work_of_case(OP.validate({"batch": 4, "heads": 8, "head_dim": 64} | values))


def short(record):
    """Counting the tiles of a mask of 16384 x 16384 takes seconds."""
    return record.op == "attention" and record.case["seq"] * record.case["seq_k"] <= 1 << 24


def cases():
    masks = ("full", "causal", "sliding_window", "longformer", "strided")
    return [
        work(batch=b, seq=s, mask=m, head_dim=d) for b in (1, 8, 64) for s in (128, 256, 512) for m in masks for d in (64, 128)
    ]


def test_work_counts_what_the_plan_counts():
    for text in ("full", "causal", "bigbird", "document:lengths=100+100"):
        values = OP.validate({"batch": 3, "heads": 2, "seq": 200, "mask": text})
        plan = prepare(OP.inputs(values, "float32", "cpu", 0)["mask"], 200, 200)
        figures = (1, plan.live_elements, plan.full_tiles, plan.partial_tiles, plan.longest)
        assert chooser.work(3, 2, 200, 64, *figures) == chooser.work_of_case(values)


def test_a_fit_finds_the_prices_that_times_were_made_of():
    prices = {"v1_a": (2, 30, 0, 0, 0.5, 0, 1), "v2_b": (4, 0, 0.2, 0.05, 0, 0.4, 0)}
    rows = [(impl, "float16", w, float(np.dot(w.features(132), p))) for impl, p in prices.items() for w in cases()]
    made = chooser.fit("GPU", 132, rows)
    assert {w.blocks <= 4 * 132 for _, _, w, _ in rows} == {True, False}, "both regimes are fitted"
    for impl, p in prices.items():
        assert np.allclose(made.prices["16 bit, few tiles"][impl], p, atol=1e-2 * max(p))
    for impl, dtype, w, us in rows:  # where there are many tiles the longest list never binds, and two prices add up
        assert made.microseconds(dtype, w)[impl] == pytest.approx(us, rel=1e-2)
    assert chooser.regret(made, rows) == pytest.approx([1.0] * len({w for _, _, w, _ in rows}), abs=1e-6)
    assert made.choose("float32", cases()[0], prices) is None and made.choose("bfloat16", cases()[0], ["v2_b"]) == "v2_b"
    with pytest.raises(ValueError, match="at least 6 records"):
        chooser.fit("GPU", 132, rows[:5])


def test_prices_are_never_negative():
    generator = np.random.default_rng(0)
    for _ in range(50):
        a, b = generator.normal(size=(12, 5)), generator.normal(size=12)
        x = chooser.non_negative(a, b)
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
        rows = chooser.measured(records)
        if len(rows) < 30:
            continue
        ratios = chooser.cross_validated(device, sms, rows)
        checked += len(ratios)
        assert np.mean(np.array(ratios) <= 1.05) >= 0.95, (device, sorted(ratios)[-5:])
    assert checked >= 12


def test_what_ships_can_be_read_and_names_its_runs():
    files = sorted(chooser.SHIPPED.glob("*.json"))
    assert files
    for file in files:
        made, where = chooser.load(json.loads(file.read_text())["device"])
        assert made.runs and made.prices["16 bit"] and (where == file or where.parent == chooser.own_folder())


def test_a_fit_made_here_comes_first_and_a_broken_one_counts_as_none(tmp_path, monkeypatch):
    monkeypatch.setattr(chooser, "own_folder", lambda: tmp_path)
    shipped, _ = chooser.load("NVIDIA H200")
    own = chooser.Fit("NVIDIA H200", 1, {"16 bit": {"v1_rowwise": [1.0] * len(chooser.FEATURES)}}, (), {}, 6)
    file = chooser.save(own, tmp_path)
    assert chooser.load("NVIDIA H200")[0].sms == 1
    for text in (
        "{",
        json.dumps({"device": "NVIDIA H200"}),
        json.dumps(json.loads(file.read_text()) | {"prices": {"16 bit": {"v1": [1]}}}),
    ):
        file.write_text(text)
        assert chooser.load("NVIDIA H200")[0] == shipped
    assert chooser.load("no such device") is None


def test_the_rule_without_a_fit():
    assert choosing.by_rule((9, 0), 2, 512, 100.0, 120.0, True) == "v3_hopper"
    assert choosing.by_rule((9, 0), 2, 512, 100.0, 120.0, True, scheduled=True) == "v4_scheduled"
    assert choosing.by_rule((9, 0), 2, 512, 100.0, 120.0, False, scheduled=True) == "v2_blockwise"
    assert choosing.by_rule((8, 0), 2, 512, 100.0, 120.0, True) == "v2_blockwise"
    for capability, size in (((7, 5), 2), ((9, 0), 4)):  # no tensor cores for these
        assert choosing.by_rule(capability, size, 512, 100.0, 120.0, True) == "v2_blockwise_fp32"
        assert choosing.by_rule(capability, size, 512, 10.0, 120.0, True) == "v1_rowwise"
    for seq_q, live in ((8, 100.0), (512, 1.5)):
        assert choosing.by_rule((9, 0), 2, seq_q, live, 120.0, True) == "v1_rowwise"


def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(chooser, "own_folder", lambda: tmp_path)
    runs = [str(home) for home in RECORDED if (found := folder.records(home))[0].op == "attention" and all(map(short, found))]
    words = ["chooser", "--json", "--fit", *runs, "--device-name", "NVIDIA H200", "--case", "batch=16,seq=256,mask=causal"]
    assert cli.main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["held_out"]["within_5_percent"] >= 0.95 and data["saved"].startswith(str(tmp_path))
    times = data["predictions"][0]["microseconds"]
    assert data["predictions"][0]["chosen"] == min(times, key=times.get)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(json.loads((ROOT / "backend/schemas/chooser.json").read_text())).validate(data)
    assert cli.main(["chooser", "--device-name", "NVIDIA H200"]) == 0 and "prices in us" in capsys.readouterr().out
    assert cli.main(["chooser", "--device-name", "GTX 1"]) == 1 and "there is no fit for 'GTX 1'" in capsys.readouterr().err
    assert cli.main(["chooser", "--ship"]) == 2


@pytest.mark.gpu
def test_auto_on_a_gpu_takes_a_kernel_that_takes_the_inputs():
    for dtype in OP.DTYPES:
        for contiguous in (True, False):
            inputs = OP.inputs(OP.validate({"seq": 300, "mask": "causal", "head_dim": 40}), dtype, "cuda", 0, contiguous)
            with torch.no_grad():
                assert OP.call(inputs, "auto").shape == (1, 12, 300, 40)


def test_only_the_newest_source_of_a_kernel_counts():
    def record(ms, source, seq):
        values = OP.validate({"seq": seq})
        times = Times(graph=Time(ms, ms, ms, 10, True))
        return Record("attention", "v1_a", values, "float16", "cuda:0", "ok", time_ms=times, source_hash=source)

    rows = chooser.measured([record(1.0, "old", 64), record(2.0, "new", 64), record(3.0, "old", 128), record(4.0, "new", 128)])
    assert [us for *_, us in rows] == [2000.0, 4000.0]
