"""The Profiler page of a profile without a GPU: what the host did."""

import profiles_on_disk as disk
from drawn_page import figures, said
from made_up import trace as write_trace
from profiles_on_disk import TRACE

from fusescope.profiling.chrome import importer


def test_a_trace_without_a_gpu_shows_the_host(draw, profiles):
    path = disk.trace(profiles, TRACE)
    events = [e for e in disk.events() if e.get("cat") in ("cpu_op", "user_annotation")]
    importer.load(
        write_trace(path / "artifacts" / "trace.json.gz", events), lambda name: path / "artifacts" / name
    )
    at = draw("profiler", run=TRACE)
    assert at.subheader[0].value == "No GPU in this profile" and "Steps on the host" in figures(at)
    assert "host time" in figures(draw("profiler", run=TRACE, view="Time breakdown"))
    assert "no GPU kernels" in said(draw("profiler", run=TRACE, view="Occupancy").info)


def test_of_a_host_the_dearest_operator_is_of_all_its_shapes(draw, profiles):
    """A row for each shape hid that one operator took more than the longest row; and the share of time
    between operators was nowhere."""
    path = disk.trace(profiles, TRACE)

    def op(name, ts, dur, shape):
        event = {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1}
        return event | {"args": {"Input Dims": [[shape, shape]]}}

    events = [op("aten::mm", 0, 40, 8), op("aten::addmm", 100, 30, 8), op("aten::addmm", 170, 30, 16)]
    importer.load(
        write_trace(path / "artifacts" / "trace.json.gz", events), lambda name: path / "artifacts" / name
    )
    at = draw("profiler", run=TRACE)
    assert "took 100 µs; aten::addmm accounts for 60.0 %" in said(at.markdown).replace("\\", "")
    shown = {m.label: m.value for m in at.metric}
    assert shown["span"] == "200 µs" and shown["in no operator"] == "50.0 %"
