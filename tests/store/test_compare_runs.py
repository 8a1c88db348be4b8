"""Comparing two runs says what differs before it says what is faster."""

import json

import pytest
from make_runs import make

from fusescope.store import compare, folder


@pytest.fixture
def two(profiles):
    make(profiles, 5, 10)
    names = sorted(p.name for p in profiles.iterdir())
    return profiles / names[1], profiles / names[3]  # both without a failure


def edit(path, **changes):
    data = json.loads((path / "run.json").read_text())
    for part, values in changes.items():
        data[part] |= values
    (path / "run.json").write_text(json.dumps(data))


def rewrite(path, change):
    lines = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
    (path / "results.jsonl").write_text("".join(json.dumps(change(r) or r) + "\n" for r in lines))


def test_equal_runs_differ_in_nothing(two):
    a, _ = two
    assert compare.differences(a, a) == []
    pairs = compare.pairs(a, a)
    assert set(pairs["ratio"].dropna()) == {1.0} and set(pairs["verdict"].dropna()) == {"cannot tell"}


def test_every_difference_is_a_sentence(two):
    a, b = two
    edit(
        b,
        environment={"torch": "2.13.0", "driver": None, "others_on_gpu": [{"pid": 1}]},
        spec={"op": "gemm", "cache": "cold"},
    )
    rewrite(b, lambda r: r | {"op": "gemm", "source_hash": "new", "throttled": True})
    rewrite(a, lambda r: r | {"op": "gemm"})
    said = compare.differences(a, b)
    for sentence in (
        "torch: 2.11.0 against 2.13.0",
        "driver: 580.1 against unknown",
        "cache mode: unknown against cold",
        f"the device was throttled in part of {b.name}",
        f"other processes used the GPU during {b.name}",
    ):
        assert sentence in said
    assert any(s.startswith("source of gemm eager: ") and s.endswith("against new") for s in said)


def test_clocks_are_compared_where_they_were_seen(two):
    a, b = two
    for path, clock in ((a, 1980), (b, 1410)):
        line = {"case_key": "x", "impl": "y", "mode": "graph", "ms": [1], "state": [{"sm_mhz": clock}, None]}
        (path / "samples.jsonl").write_text(json.dumps(line) + "\n")
    assert "SM clock (median): 1980 MHz against 1410 MHz" in compare.differences(a, b)


def test_runs_without_a_common_case_say_so(two):
    a, b = two
    rewrite(b, lambda r: r | {"dtype": "float32"})
    assert "the two runs have no case in common" in compare.differences(a, b)
    pairs = compare.pairs(a, b)
    assert (
        set(pairs["a_status"]) | set(pairs["b_status"]) == {"ok", "wrong", "missing"}
        and pairs["ratio"].isna().all()
    )


def test_pairs_tell_faster_slower_and_what_is_missing(two):
    a, b = two
    rewrite(a, lambda r: r | {"op": "x"})

    def faster(r):
        r["op"] = "x"
        if r["time_ms"]:
            for t in ("graph", "eager", "graph_cold", "eager_cold"):
                r["time_ms"][t] = {"median": 0.5, "low": 0.45, "high": 0.55, "n": 9, "converged": True}
        return r

    rewrite(b, faster)
    pairs = compare.pairs(a, b)
    assert len(pairs) == 10
    ok = pairs[pairs["a_status"] == "ok"]
    assert set(ok["verdict"]) == {"faster"} and set(ok["mode"]) == {"graph"}
    assert list(ok["ratio"]) == [am / 0.5 for am in ok["a_ms"]]
    assert set(compare.pairs(b, a)["verdict"].dropna()) == {"slower"}
    wrong = pairs[pairs["a_status"] == "wrong"].iloc[0]
    assert wrong[["verdict", "mode", "ratio"]].isna().all()


def test_an_unfinished_run_is_said(two):
    a, b = two
    edit(b, environment={})
    data = json.loads((b / "run.json").read_text()) | {"status": "cancelled"}
    (b / "run.json").write_text(json.dumps(data))
    assert f"{b.name} is cancelled: its records may not be all there" in compare.differences(a, b)
    assert folder.read(b).status == "cancelled"
