"""Runs measured in pieces become one whole run; what does not belong together is refused."""

import json

import pytest
from make_runs import IMPLS, make, record

from fusescope.core.errors import RunError
from fusescope.store import folder, library, merging


@pytest.fixture
def pieces(profiles):
    """pieces([(cases, impls of the last case), …]) → folders of cancelled runs of one comparison."""
    make(profiles, 1, 1)
    (model,) = profiles.glob("2*")
    data = json.loads((model / "run.json").read_text())
    data["environment"] |= {"git_commit": "c0ffee", "device_uuid": "GPU-0"}

    def build(*parts: tuple[list[int], int], **change) -> list:
        found = []
        for at, (cases, last) in enumerate(parts):
            home = profiles / f"20270101-00000{at}-bench-00000{at}"
            home.mkdir()
            spec = data["spec"] | {"op": "add", "impls": list(IMPLS), "cases": [{"n": n} for n in cases]}
            own = {"id": home.name, "status": "cancelled", "reason": "stopped", "spec": spec}
            own |= {"created": 100.0 + at, "started": 110.0 + at, "finished": 120.0 + at}
            (home / "run.json").write_text(json.dumps(data | own | change.get(f"run{at}", {})))
            with open(home / "results.jsonl", "w") as results, open(home / "samples.jsonl", "w") as samples:
                for n in cases:
                    for impl in IMPLS[: last if n == cases[-1] else None]:
                        line = record("add", n, impl)
                        results.write(json.dumps(line) + "\n")
                        key = folder.Record.from_json(line).case_key
                        told = {
                            "case_key": key,
                            "impl": impl,
                            "mode": "graph",
                            "ms": [1.0 + at],
                            "state": None,
                        }
                        samples.write(json.dumps(told) + "\n")
            found.append(home)
        return found

    return build


def sizes(path) -> list[int]:
    return [r.case["n"] for r in folder.records(path)][:: len(IMPLS)]


def test_pieces_become_one_run_that_is_done(pieces):
    path = merging.merge(pieces(([1, 2], 5), ([3, 4], 5)), "Add, four sizes")
    run = folder.read(path)
    assert run.status == "done" and run.title == "Add, four sizes" and sizes(path) == [1, 2, 3, 4]
    assert [c["n"] for c in run.spec["cases"]] == [1, 2, 3, 4] and len(folder.samples(path)) == 20
    assert [p["cases"] for p in run.environment["pieces"]] == [2, 2]
    assert (run.created, run.started, run.finished) == (100.0, 110.0, 121.0)
    assert library.find(run.id) == path


def test_a_case_that_was_cut_short_is_left_out(pieces):
    path = merging.merge(pieces(([1, 2], 3)))
    assert sizes(path) == [1] and folder.read(path).status == "done"


def test_a_case_of_fewer_processes_than_were_asked_for_is_left_out(pieces):
    """It became a whole run "of 3 processes" whose intervals are those of one."""
    (path,) = pieces(([1, 2], 5))
    data = json.loads((path / "run.json").read_text())
    data["spec"]["processes"] = 3
    (path / "run.json").write_text(json.dumps(data))
    lines = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["speedup"]:
            line["speedup"]["processes"] = 3 if line["case"]["n"] == 1 else 2
    (path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sizes(merging.merge([path])) == [1]


def test_of_a_case_measured_twice_the_later_counts(pieces):
    path = merging.merge(pieces(([1, 2], 5), ([2, 3], 5)))
    assert sizes(path) == [1, 2, 3]
    assert {tuple(s["ms"]) for s in folder.samples(path) if '"n":2' in s["case_key"]} == {(2.0,)}


def test_of_several_gpus_none_is_named_for_all(pieces):
    other = {"environment": {"device_name": "NVIDIA H200", "git_commit": "c0ffee", "device_uuid": "GPU-1"}}
    both = {"run0": {"environment": other["environment"] | {"device_uuid": "GPU-0"}}, "run1": other}
    run = folder.read(merging.merge(pieces(([1], 5), ([2], 5), **both)))
    assert run.environment["device_uuid"] is None
    assert [p["device_uuid"] for p in run.environment["pieces"]] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "trace"}, "not two comparisons of one kind"),
        ({"environment": {"device_name": "NVIDIA H200", "git_commit": "another"}}, "differ in .*git_commit"),
        (
            {"spec": {"op": "gemm", "impls": list(IMPLS), "cases": []}},
            "differ in baseline, device, dtype, op",
        ),
    ],
    ids=["kind", "commit", "operator"],
)
def test_what_does_not_belong_together_is_refused(pieces, change, says):
    with pytest.raises(RunError, match=says):
        merging.merge(pieces(([1], 5), ([2], 5), run1=change))


def test_nothing_complete_is_refused(pieces):
    with pytest.raises(RunError, match="has a record of each implementation"):
        merging.merge(pieces(([1], 2)))
