"""What limits it, and what changed: every answer with its numbers."""

import pytest

from fusescope.analysis.profile.diff import diff, totals
from fusescope.analysis.profile.verdict import in_short, verdict


def profile(busy, host=0, launched=0, copies=0.0, span=1000, unknown=0):
    device = {
        "device": 0,
        "first_ns": 0,
        "last_ns": span,
        "busy_ns": busy,
        "kernel_ns": busy * (1 - copies),
        "copy_ns": busy * copies,
    }
    idle = {"host": {"gaps": 1, "total_ns": host}, "launched": {"gaps": 1, "total_ns": launched}}
    idle |= {"unknown": {"gaps": 1, "total_ns": unknown}} if unknown else {}
    return {"devices": [device], "idle": idle}


def speed(sm, memory, ns=100):
    return {"sm_percent": sm, "memory_percent": memory, "duration_ns": ns}


def test_idle_time_without_launches_is_not_said_to_spare_the_host():
    """A trace with kernels alone had "0 % because the host had not launched"."""
    text = verdict(profile(571, unknown=429)).because[0]
    assert text.endswith(
        "idle 42.9 % of 1 µs; 42.9 % for an unknown cause: the next kernel's launch is not recorded"
    )
    both = verdict(profile(500, host=300, unknown=200)).because[0]
    assert "; 30 % because the host" in both and "; 20 % for an unknown cause" in both
    assert "unknown cause" not in verdict(profile(500, host=495, unknown=5)).because[0]


@pytest.mark.parametrize(
    ("given", "kind", "cites"),
    [
        ((profile(300, host=600, launched=100),), "launch-bound", "idle 70 % of 1 µs; 60 %"),
        ((profile(300, launched=700), [speed(20, 80)]), "memory-bound", "memory 80 %"),
        ((profile(1000), [speed(80, 20)]), "compute-bound", "SM 80 %"),
        (
            (profile(1000), [speed(90, 10, 100), speed(10, 90, 900)]),
            "memory-bound",
            "SM 18 % and memory 82 %",
        ),
        ((profile(1000), [speed(30, 40)]), "latency-bound", "neither reaches 60 %"),
        ((profile(1000, copies=0.7), [speed(90, 10)]), "copy-bound", "70 % of the device's busy time"),
        (
            (profile(1000), [], 10.0, 200.0),
            "memory-bound",
            "10 FLOP per byte, and the device's ridge is at 200",
        ),
        ((profile(1000), [], 300.0, 200.0), "compute-bound", "300 FLOP per byte"),
        ((profile(1000), [], 1034.2, 200.0), "compute-bound", "1,030 FLOP per byte"),
        (
            (profile(1000), [], 300.0, 200.0, 0.7),
            "compute-bound",
            "reach 70 % of what the device allows there",
        ),
        ((profile(1000), [], 300.0, 200.0, 0.2), "latency-bound", "reach 20 %"),
        ((profile(1000),), "inconclusive", "neither a profile of Nsight Compute"),
        (
            (profile(1000), [speed(None, 20), speed(float("nan"), 3)]),
            "inconclusive",
            "report has no SM throughput",
        ),
        (({},), "inconclusive", "no activity of a GPU"),
        (({}, [speed(80, 20)]), "compute-bound", "over 1 launch,"),
    ],
)
def test_a_verdict_cites_its_numbers(given, kind, cites):
    found = verdict(*given)
    assert found.kind == kind and cites in "; ".join(found.because), found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((profile(60, host=940),), "launch-bound, 94 % idle"),
        ((profile(1000, copies=0.7),), "copy-bound, 70 % copies"),
        ((profile(1000), [speed(29.4, 26)]), "latency-bound, SM 29 %, memory 26 %"),
        (({}, [speed(80, 20)]), "compute-bound, SM 80 %, memory 20 %"),
        ((profile(1000), [], 10.0, 200.0), "memory-bound"),
        ((profile(980, launched=20),), "device 98 % busy"),
        (({},), ""),
    ],
)
def test_a_verdict_in_a_few_words(given, words):
    assert in_short(verdict(*given)) == words


def row(name, ns, calls=1, **more):
    return {"name": name, "total_ns": ns, "calls": calls, **more}


def test_kernels_are_faster_slower_new_and_gone():
    a = [
        row("same", 100),
        row("fast", 1000, 4),
        row("slow", 100),
        row("gone", 50),
        row("void t::tile<64>(int)", 300),
    ]
    b = [
        row("same", 101),
        row("fast", 400, 4),
        row("slow", 200),
        row("new", 70),
        row("void t::tile<128>(int)", 150),
    ]
    found = {d.name: d for d in diff(a, b)}
    assert {name: d.state for name, d in found.items()} == {
        "same": "same",
        "fast": "faster",
        "slow": "slower",
        "gone": "gone",
        "new": "new",
        "void t::tile<128>(int)": "faster",
    }
    assert found["fast"].delta_ns == -600 and found["fast"].speedup == 2.5 and found["fast"].a_calls == 4
    assert found["new"].speedup is None and found["gone"].delta_ns == -50
    assert found["void t::tile<128>(int)"].detail == "was void t::tile<64>(int)"
    assert diff(a, b)[0].name == "fast"
    sums = totals(diff(a, b))
    assert sum(s["delta_ns"] for s in sums.values()) == sum(r["total_ns"] for r in b) - sum(
        r["total_ns"] for r in a
    )
    assert sums["faster"]["rows"] == 2


def test_a_difference_is_by_step():
    found = diff([row("k", 1000, 10)], [row("k", 400, 4)], a_steps=5, b_steps=2)
    assert found[0].state == "same" and (found[0].a_ns, found[0].b_ns, found[0].a_calls) == (200, 200, 2)


def test_by_operator_and_module():
    a = [
        {
            "name": "aten::mm",
            "shapes": "[[8, 8]]",
            "calls": 1,
            "self_device_ns": 10,
            "self_host_ns": 5,
            "device_ns": 10,
        }
    ]
    b = [a[0] | {"shapes": None, "self_device_ns": 20}, a[0] | {"name": "aten::view", "self_device_ns": 0}]
    assert [(d.name, d.detail, d.state) for d in diff(a, b, "operator")] == [
        ("aten::mm", "", "new"),
        ("aten::mm", "[[8, 8]]", "gone"),
    ]
    module = [{"module": "bert.0", "total_device_ns": 7, "kernels": 2}]
    assert diff(module, module, "module")[0].state == "same"


def test_layers_of_two_classes_of_model_are_the_same_layers():
    def modules(root, times):
        return [
            {"module": f"{root}{path}", "total_device_ns": ns, "kernels": 1} for path, ns in times.items()
        ]

    a = modules(
        "BertModel",
        {"": 100, ".encoder": 90, ".encoder.layer.0": 45, ".encoder.layer.0.output": 40, ".pooler": 10},
    )
    b = modules(
        "FusedEncoder",
        {"": 60, ".encoder": 50, ".encoder.layer.0": 25, ".encoder.layer.0.output": 5, ".pooler": 9},
    )
    found = {d.name: d for d in diff(a, b, "module")}
    assert {n: d.state for n, d in found.items()} == {
        "FusedEncoder": "faster",
        "FusedEncoder.encoder": "faster",
        "FusedEncoder.encoder.layer.0": "faster",
        "FusedEncoder.encoder.layer.0.output": "new",
        "BertModel.encoder.layer.0.output": "gone",
        "FusedEncoder.pooler": "new",
        "BertModel.pooler": "gone",
    }
    assert found["FusedEncoder.encoder"].detail == "was BertModel.encoder"
    two = modules("Other", {"": 5})
    assert {d.state for d in diff(a + two, b, "module")} == {"new", "gone"}, (
        "which root is which is not known"
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"by": "thread"}, "a difference is by kernel"),
        ({"a_steps": 0}, "at least one step"),
        ({"tolerance": -1}, "tolerance is at least 0"),
    ],
)
def test_bad_requests(more, says):
    with pytest.raises(ValueError, match=says):
        diff([], [], **more)
