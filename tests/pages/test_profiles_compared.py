"""Two profiles: whether they may be compared is said first, then a ratio without the profiler's own cost."""

import dataclasses
import json

import folders
import profiles_on_disk as disk
import pytest
import synthetic
from drawn_page import figures, said
from profiles_on_disk import TRACE

from fusescope import cli
from fusescope.analysis.compare import profiled
from fusescope.analysis.profile import diff
from fusescope.charts.profile import changes

OTHER = disk.OTHER
BENCH = "20261121-120000-bench-dddddd"


def run(device="NVIDIA H200", kind="trace", **spec):
    found = synthetic.run(TRACE)
    return dataclasses.replace(
        found,
        kind=kind,
        spec=disk.SPEC | spec,
        environment={**found.environment, "device_name": device},
    )


def compared(draw, profiles, **spec):
    disk.trace(profiles, TRACE)
    disk.trace(profiles, OTHER, disk.SPEC | spec, scale=0.5)
    return draw("profiler", run=OTHER, view="Compare", against=TRACE)


def benchmark(profiles, **ms):
    rows = [synthetic.ok(impl, time, ms["v2_blockwise"], disk.CASE) for impl, time in ms.items()]
    folders.write(profiles, synthetic.run(BENCH), rows, samples=False)


def test_the_same_work_in_two_implementations_is_a_yes():
    answer = profiled.judge(run(), run(impl="sdpa"))
    assert answer.comparable and answer.work
    assert answer.text == "Yes: the same work on NVIDIA H200, as v2_blockwise (a) and sdpa (b)."
    assert profiled.judge(run(), run()).text.endswith("as v2_blockwise in both.")


@pytest.mark.parametrize(
    "spec, words",
    [
        ({"op": "model:bert-base"}, "operator attention against model bert-base"),
        ({"case": disk.CASE | {"seq": 2048, "seq_k": 2048}}, "(seq 64 against 2,048)"),
        ({"dtype": "float32"}, "(dtype float16 against float32)"),
        ({"case": disk.CASE | {"mask": "causal"}}, "(mask full against causal)"),
    ],
)
def test_other_work_is_a_no_that_says_what_differs(spec, words):
    answer = profiled.judge(run(), run(**spec))
    assert answer.work is False and not answer.comparable
    assert answer.text.startswith("No: the work differs") and words in answer.text


def test_another_device_is_a_no_and_an_imported_file_unknown():
    answer = profiled.judge(run(), run(device="NVIDIA B200"))
    assert answer.work and not answer.comparable
    assert answer.text.startswith("No: the devices differ (NVIDIA H200 against NVIDIA B200)")
    imported = dataclasses.replace(run(kind="import"), spec={"file": "foreign.json"})
    answer = profiled.judge(imported, run())
    assert answer.work is None and answer.comparable
    assert answer.text == "Unknown: a does not say what work was done."


def test_steps_profiler_and_memory_are_cautions():
    answer = profiled.judge(run(), run(kind="ncu", memory=True), (3, 5))
    assert answer.text.startswith("Yes")
    assert answer.cautions[0] == "profiler: torch.profiler against Nsight Compute"
    assert answer.cautions[1] == "steps: 3 against 5; figures are per step"
    assert answer.cautions[2] == "memory was recorded in b alone, which slows down the host"


def test_other_work_has_neither_arrows_nor_slower(draw, profiles):
    at = compared(draw, profiles, op="model:bert-base")
    assert "May b be compared with a? No: the work differs" in said(at.error).replace("\\", "")
    shown = said(at.subheader) + said(at.markdown) + said(at.get("html")) + figures(at)
    assert not [word for word in ("▲", "▼", "faster", "slower", "worse") if word in shown]
    assert at.subheader[0].value.startswith("A step takes ")


def test_the_ratio_without_the_profiler_comes_first(draw, profiles):
    benchmark(profiles, v2_blockwise=0.4, v4_scheduled=0.1)
    at = compared(draw, profiles, impl="v4_scheduled")
    assert "A call of b is 3.78× faster: 408 µs → 108 µs, without the profiler" in at.subheader[0].value
    words = said(at.markdown)
    assert "By [a benchmark](" in words and "Under the profiler: " in words
    assert "of a step of a, " in words and "are the profiler's own cost: without it a call takes 408" in words


def test_without_a_benchmark_the_cost_is_said_where_the_device_waits(draw, profiles):
    at = compared(draw, profiles, impl="v4_scheduled")
    assert "step" in at.subheader[0].value
    assert "waits for the host, which the profiler slows down" in said(at.markdown)


def test_on_two_devices_changes_are_drawn_without_a_verdict():
    rows = [diff.Difference("k", "", "slower", 1e3, 2e3, 1e3, 0.5, 1, 1)]
    drawn = json.dumps(changes.bars(rows, verdicts=False, by="kernel").to_plotly_json(), default=str)
    assert "+1.00 \\u00b5s" in drawn and "slower" not in drawn and "\\u25bc" not in drawn


def test_the_command_line_says_it_too(profiles, capsys):
    disk.trace(profiles, TRACE)
    disk.trace(profiles, OTHER, disk.SPEC | {"dtype": "float32"}, scale=0.5)
    assert cli.main(["profile", "diff", TRACE, OTHER]) == 0
    text = capsys.readouterr().out
    assert "may b be compared with a? No: the work differs (dtype float16 against float32)" in text
    assert "faster" not in text and "slower" not in text and "step on the device" in text
    assert cli.main(["profile", "diff", TRACE, OTHER, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["comparable"]["yes"] is False and found["step"]["speedup"] is None


def test_a_pinned_baseline_of_other_work_gives_no_verdicts(draw, profiles):
    disk.trace(profiles, TRACE)
    disk.trace(profiles, OTHER, disk.SPEC | {"op": "model:bert-base"}, scale=0.5)
    at = draw("profiler", run=OTHER, baseline=TRACE)
    assert "May b be compared with a? No" in said(at.error)
