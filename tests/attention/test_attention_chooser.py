"""The chooser: its fit on times made up from known prices, on the recorded runs against the best measured
kernel, and its verb."""

import dataclasses
import json

import numpy as np
import pytest

from fusescope import cli, masks, ops
from fusescope.core import same_code
from fusescope.core.paths import ROOT
from fusescope.core.records import Record, Time, Times
from fusescope.masks import layout
from fusescope.ops.attention import prepare
from fusescope.ops.attention.dispatch import cost_model, counts, fitting
from fusescope.ops.attention.work import parts
from fusescope.store import folder

OP = ops.load("attention")
RECORDED = sorted((ROOT / "profiles" / "recorded").glob("*-bench-*"))


def work(**values):
    return counts.counts_of_case(OP.validate({"batch": 4, "heads": 8, "head_dim": 64} | values), 132)


def short(record, most=1 << 24):
    """Counting the tiles of a mask of 16384 x 16384 takes seconds."""
    return record.op == "attention" and record.case["seq"] * record.case["seq_k"] <= most


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
        assert counts.counts(3, 2, 200, 64, *figures) == counted._replace(in_parts=())
        plan = prepare(masks.parse(text), 200, 200)
        in_parts = ((group, parts.of(plan, 3, 2, 64, 132 * (4 - group), group).predicted) for group in (2, 3))
        assert counted.in_parts == tuple(in_parts)
    for left_out in ({"mask": "causal", "head_dim": 136}, {"mask": "padding:lengths=100+7", "batch": 2}):
        assert counts.counts_of_case(OP.validate({"seq": 200} | left_out), 132).in_parts == ()


@pytest.mark.slow
def test_a_fit_finds_the_prices_that_times_were_made_of():
    prices = {
        "v1_a": (2, 30, 0, 0, 0.5, 0, 1, 0),
        "v2_b": (4, 0, 0.2, 0.05, 0, 0.4, 0, 0),
        "v5_parts": (5, 0.9),
    }
    rows = [
        (impl, "float16", w, float(np.dot(w.features(impl, 132), p)))
        for impl, p in prices.items()
        for w in cases()
    ]
    made = fitting.fit("GPU", 132, rows)
    assert set(made.prices) == {
        "16 bit" + more
        for more in ("", ", few tiles", ", some tiles", ", some tiles, wide heads", ", wide heads")
    }, "all regimes are fitted"
    wide = next(
        w for w in cases() if cost_model.kind_of("float16", w, 132).endswith("some tiles, wide heads")
    )
    prices = {kind: of for kind, of in made.prices.items() if kind.count(",") < 2}
    narrow = dataclasses.replace(made, prices=prices).microseconds("float16", wide)
    assert set(narrow) == set(made.microseconds("float16", wide)), "of no measured ones, the narrow heads'"
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


@pytest.mark.long
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


def short_runs(tmp_path) -> list[str]:
    """The recorded runs of attention without their long cases."""
    found = []
    for home in RECORDED:
        records = [r for r in folder.records(home) if short(r, 1 << 22)]
        if records:
            copy = tmp_path / home.name
            copy.mkdir()
            about = json.loads((home / "run.json").read_text())
            about.pop("contents", None)  # what the writer noted of the whole file
            (copy / "run.json").write_text(json.dumps(about))
            lines = "".join(json.dumps(r.to_json()) + "\n" for r in records)
            (copy / "results.jsonl").write_text(lines)
            found.append(str(copy))
    return found


CASE = ["--device-name", "NVIDIA H200", "--case", "batch=16,seq=256,mask=causal"]


@pytest.mark.slow
def test_the_verb(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cost_model, "own_folder", lambda: tmp_path)
    runs = short_runs(tmp_path)
    words = ["chooser", "--json", "--fit", *runs, *CASE]
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
        and "prices in µs" in capsys.readouterr().out
    )
    assert (
        cli.main(["chooser", "--device-name", "GTX 1"]) == 1
        and "there is no fit for 'GTX 1'" in capsys.readouterr().err
    )
    assert cli.main(["chooser", "--ship"]) == 2


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


def test_records_of_an_edited_source_with_the_same_machine_code_count(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_CUDA", str(tmp_path))
    same_code.add(tmp_path, {("attention", "v1_a"): ("before", "after")})

    def record(ms, source):
        times = Times(graph=Time(ms, ms, ms, 10, True))
        return Record(
            "attention",
            "v1_a",
            OP.validate({"seq": 64}),
            "float16",
            "cuda:0",
            "ok",
            time_ms=times,
            source_hash=source,
        )

    rows = fitting.measured([record(1.0, "other"), record(2.0, "before"), record(3.0, "after")], 132)
    assert [us for *_, us in rows] == [2000.0, 3000.0]


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


def test_prices_of_what_was_not_measured_again_are_kept():
    def fit(prices, run, corrections=None):
        return cost_model.Fit("X", 132, prices, (run,), {"v2_b": run}, 9, corrections or {})

    once, again = [1.0] * 8, [2.0] * 8
    old = {"v1_a": once, "v2_b": once, "v3_c": [3.0] * 7}  # seven prices are of other features
    corrections = {"16 bit": {"one": "v1_a"}, "float32": {"two": "v1_a"}}
    before = fit({"16 bit": old, "float32": {"v2_b": once}}, "one", corrections)
    made = fitting.keeping(fit({"16 bit": {"v2_b": again}}, "two"), before)
    assert made.prices == {"16 bit": {"v1_a": once, "v2_b": again}, "float32": {"v2_b": once}}
    assert made.corrections == {"float32": {"two": "v1_a"}}, "of 16 bit all is known anew"
    assert made.runs == ("two", "one") and made.sources == {"v2_b": "two"}
