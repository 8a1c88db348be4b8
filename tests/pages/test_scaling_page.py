"""The Scaling page: what it says of a run, in every view, of one that lacks what a view needs, and of
settings that cannot be. The run is made from arithmetic: half serial on tensor parallel, ideal on data
parallel."""

import shlex

import folders
import pytest
import synthetic
from drawn_page import query, said, tables

from fusescope import cli, models
from fusescope.analysis.scaling import links, measured
from fusescope.charts.scaling import devices, ranks
from fusescope.charts.scaling import links as links_chart
from fusescope.core.records import Record, Speedup, Times
from fusescope.models.describe import layouts
from pages._ui.answer import parallel_sizes
from pages._ui.scaling import page

CASE = models.validate("gpt2", {"batch": 16, "seq": 64})
IMPLS = ("sdpa", "sdpa-tp2", "sdpa-tp3", "sdpa-tp4", "sdpa-dp2", "sdpa-dp4")
SERIAL = 0.5


def record(impl: str, scaling: str = "strong", ms: float | None = None) -> Record:
    attention, layout = layouts.named(impl)
    n = layout.ranks
    ms = ms or 8.0 * (SERIAL + (1 - SERIAL) / n if layout.tp > 1 else 1 / n)
    share = {"span_ms": ms, "communication_ms": ms / 4, "compute_ms": ms / 2, "exposed_ms": ms / 8}
    share |= {"share": 0.25, "hidden": 0.5}
    case = CASE
    if scaling == "weak":
        case, ms = CASE | {"batch": CASE["batch"] * n}, 8.0 * (1 + 0.1 * (n - 1))
    parallel = {
        "layout": str(layout),
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ranks": n,
        "micro_batches": 1,
        "scaling": scaling,
        "attention": attention,
        "single_ms": 8.0,
        "weights_bytes": [400 << 20] * n,
        "peak_bytes": [None] * n,
        "communication": {
            "share": 0.25 if n > 1 else 0.0,
            "hidden": 0.5 if n > 1 else None,
            "ranks": [share] * n if n > 1 else [],
            "unknown": None,
        },
    }
    gain = 8.0 / ms
    return Record(
        "model:gpt2",
        impl,
        case,
        "float32",
        "cpu",
        "ok",
        time_ms=Times(9.0, synthetic.time(ms)),
        speedup=Speedup("eager", gain, gain * 0.99, gain * 1.01) if scaling == "strong" else None,
        extra={"throughput": {"tokens_per_s": 16 * 64 / ms * 1e3}, "parallel": parallel},
    )


def environment():
    points = [
        {"collective": c, "ranks": 2, "bytes": size, "ms": links.given(1e-5, 1e9)[c].seconds(2, size) * 1e3}
        for c in links.COLLECTIVES
        for size in (4096, 1 << 20)
    ]
    fitted = [
        links.fit(c, [(p["ranks"], p["bytes"], p["ms"] / 1e3) for p in points if p["collective"] == c])
        for c in links.COLLECTIVES
    ]
    probes = [
        {"attention": "sdpa", "tp": tp, "batch": b, "ms": 0.5 * b / tp}
        for tp in (1, 2, 4)
        for b in (16, 8, 4)
    ]
    return {
        "device_name": "AMD EPYC",
        "memory_bytes": 8 << 30,
        "links": {
            "backend": "gloo",
            "ranks": 2,
            "points": points,
            "links": [link.to_json() for link in fitted],
        },
        "probes": [{"case": CASE, "points": probes}],
    }


@pytest.fixture
def run(profiles):
    """make(records, environment) -> the run's id."""

    def make(records=None, home=profiles, **facts):
        spec = {
            "op": "model:gpt2",
            "impls": list(IMPLS),
            "cases": [CASE],
            "baseline": "sdpa",
            "dtype": "float32",
        }
        spec |= {"device": "cpu", "micro_batches": 1, "weak": False}
        run = synthetic.run("20261120-104200-parallel-abc123", kind="parallel", spec=spec)
        run = type(run)(**{**vars(run), "environment": environment() | facts})
        folders.write(home, run, [record(i) for i in IMPLS] if records is None else records)
        return run.id

    return make


def only_too_few_devices(at):
    """The form takes the run's settings, of which this machine may not have enough devices."""
    assert all("ranks from cpu on" in e.value for e in at.error), said(at.error)


@pytest.mark.slow
@pytest.mark.parametrize("view", page.VIEWS)
def test_every_view_of_a_run(draw, run, view):
    at = draw("scaling", run=run(), view=view)
    only_too_few_devices(at)
    text = said(at.markdown)
    assert "sdpa-dp4 on 4 devices is 4.00× faster than one device: 100 % of the ideal" in text
    rows = {row["layout"]: row for row in tables(at)[0]}
    assert set(rows) == set(IMPLS) and rows["sdpa-tp2"]["speed-up"] == "1.33"
    if view == "efficiency":
        laws = {row["scheme"]: row for row in tables(at)[1]}
        assert laws["sdpa, tensor parallel"]["serial share %"] == "50.0"
        assert laws["sdpa, tensor parallel"]["95 % interval"] == "50.0 % – 50.0 %"
        assert "too few" in said(at.caption), "data parallel has two counts of devices"
    if view == "predicted layouts":
        predicted = tables(at)[1]
        assert predicted[0]["devices"] == "2" and predicted[0]["layout"] == "dp2"
        assert "Fastest predicted (16 sequences of 64 tokens): dp" in text
        assert "the fit misses those times themselves by at most" in said(at.caption)
        beside = {row["layout"]: row for row in tables(at)[2]}
        assert set(beside) == set(IMPLS) - {"sdpa"}
        assert "5 of 5 measurements of this run on several devices are predicted to within" in text
        assert beside["sdpa-tp2"]["measured ms"] == rows["sdpa-tp2"]["ms"]


def test_a_host_bound_prediction_is_a_bound_and_no_error(draw, run):
    """Launches that take most of a rank's time make each prediction a lower bound: no share it is off by."""
    found = environment()
    for p in found["probes"][0]["points"]:
        p["host_ms"] = p["ms"] if p["tp"] > 1 else 0.0
    at = draw("scaling", run=run(probes=found["probes"]), view="predicted layouts")
    only_too_few_devices(at)
    assert not at.exception
    _, predicted, beside, *_ = tables(at)
    first = {row["layout"]: row for row in predicted if row["devices"] == "2"}
    assert first["tp2"]["ms"].startswith("≥ ") and first["tp2"]["speed-up"].startswith("≤ ")
    assert not first["dp2"]["ms"].startswith("≥ ") and "host-bound" in said(at.caption)
    off = {row["layout"]: row["prediction off by %"] for row in beside}
    assert off["sdpa-tp2"] == "n/a" and off["sdpa-dp2"] != "n/a"
    assert "2 of 5 measurements of this run on several devices are predicted to within" in said(at.markdown)


def test_the_sizes_of_the_times_are_said(draw, run):
    """The form may show others, or a model of all its layers that fits nowhere."""
    at = draw("scaling", run=run())
    assert f"batch={CASE['batch']}, seq={CASE['seq']}" in said(at.caption)
    assert "layers=12" in said(at.caption) and "float32" in said(at.caption)
    cut = {**CASE, "layers": 4}
    text = parallel_sizes.settings(type("Run", (), {"spec": {"op": "model:gpt2", "cases": [cut]}})())
    assert "layers=4 of 12" in text


def test_a_prediction_says_the_sizes_that_it_is_of():
    run = lambda **case: type("Run", (), {"spec": {"op": "model:gpt2", "cases": [{**CASE, **case}]}})()  # noqa: E731
    assert parallel_sizes.sizes(run(), 16) == "16 sequences of 64 tokens"
    assert parallel_sizes.sizes(run(layers=4, seq=2048), 1) == "4 of 12 layers, 1 sequence of 2,048 tokens"
    assert parallel_sizes.sizes(run(heads=4), 8) == "4 of 12 heads, 8 sequences of 64 tokens"


def test_hidden_communication_that_is_nothing_reads_zero(draw, run):
    own = [record(i) for i in ("sdpa", "sdpa-tp2", "sdpa-tp4")]
    for r, hidden in zip(own, (None, 2e-6, 0.017), strict=True):
        r.extra["parallel"]["communication"]["hidden"] = hidden
    at = draw("scaling", run=run(own))
    assert [row["hidden %"] for row in tables(at)[0]] == ["n/a", "0", "1.70"]


def test_more_devices_that_took_longer_are_said(draw, run):
    at = draw("scaling", run=run([record("sdpa"), record("sdpa-tp2", ms=12.0)]), view="efficiency")
    assert "above 100 % says that more devices took longer" in said(at.caption)


def test_the_runs_page_opens_it_with_its_command(draw, run):
    at = draw("runs", run=run())
    assert not at.error and at.button(key="run/scaling")
    (line,) = [c.value for c in at.code if "fusescope parallel" in c.value]
    words = shlex.split(line)
    assert words[:3] == ["fusescope", "parallel", "gpt2"]
    parser, _ = cli.parser_of("parallel", words[2:])
    args = parser.parse_args(words[2:])
    assert args.layout == ["tp2,tp3,tp4,dp2,dp4"] and args.attention == "sdpa"
    assert (args.axis_batch, args.micro_batches) == (["16"], 1)


def test_a_link_to_a_run_fills_the_form(draw, run):
    at = draw("scaling", run=run())
    assert at.text_input(key="scaling/layouts").value == "tp2,tp3,tp4,dp2,dp4"
    assert at.multiselect(key="scaling/attention").value == ["sdpa"]


def test_a_recorded_run_is_shown_until_this_machine_has_one(draw, run, profiles):
    run(home=profiles / "recorded")
    at = draw("scaling")
    assert "No parallel run of this model" in said(at.markdown)
    assert {row["layout"] for row in tables(at)[0]} == set(IMPLS)
    assert not at.error and not at.exception


@pytest.mark.parametrize("view", page.VIEWS)
def test_a_run_that_lacks_what_a_view_needs(draw, run, view):
    failed = Record(
        "model:gpt2", "sdpa-tp2", CASE, "float32", "cpu", "crashed", "rank 1 was killed by signal 9"
    )
    at = draw("scaling", run=run([failed], links=None, probes=None), view=view)
    only_too_few_devices(at)
    assert "rank 1 was killed by signal 9" in said(at.markdown)


def test_weak_scaling_has_its_own_law(draw, run):
    records = [record(i) for i in IMPLS] + [record(f"sdpa-tp{n}", "weak") for n in (2, 3, 4)]
    (series,) = [s for s in measured.series(records) if s.scaling == "weak"]
    assert dict(series.speedups())[4] == pytest.approx(4 / 1.3) and series.fit().law == "gustafson"
    at = draw("scaling", run=run(records), view="efficiency", scaling="weak")
    assert "Gustafson" in {row["law"] for row in tables(at)[1]}


@pytest.mark.parametrize(
    "words, sentence",
    [
        ({"layouts": "tp5"}, "12 heads, which the tensor parallel degree 5 does not divide"),
        ({"layouts": "xx"}, "A layout is single or degrees such as tp2"),
        ({"layouts": "dp1024", "batch": "1024"}, "need 1024 ranks from cpu on"),
        ({"layouts": "pp2", "batch": "3"}, "2 micro-batches do not divide the 3 sequences"),
        ({"layouts": "tp2", "trace": "pp2"}, "Trace is a layout of several ranks, one of sdpa-tp2"),
    ],
)
def test_what_cannot_be_is_said_under_the_button(draw, words, sentence):
    at = draw("scaling", model="gpt2", **words)
    assert sentence in said(at.error)
    assert at.button(key="scaling/run").disabled
    assert query(at)["layouts"] == words["layouts"]


def test_one_gpu_opens_without_an_error(draw, monkeypatch):
    from fusescope.core.machine import environment as machine

    real = machine.collect
    monkeypatch.setattr(machine, "devices", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(machine, "collect", lambda d="cpu": real("cpu") | {"device": d, "arch": "sm_90a"})
    at = draw("scaling")
    assert not at.error and "One GPU is here" in said(at.info) and at.button(key="scaling/run").disabled
    at = draw("scaling", layouts="tp2")
    assert "need 2 ranks from cuda:0 on, one for each device; here is 1 GPU" in said(at.error)


def test_charts_say_measured_and_predicted_apart():
    series = measured.series([record(i) for i in IMPLS])
    assert [(s.scheme, len(s.points)) for s in series] == [("dp", 3), ("tp", 4)]
    predicted = {("sdpa", "tp"): [(1, 8.0, False), (2, 4.5, False), (1024, 1.0, True)]}
    for figure in (devices.time(series, predicted), devices.efficiency(series, predicted)):
        dashes = {t.name: t.line.dash for t in figure.data}
        assert (
            dashes["sdpa, tensor parallel, predicted"] == "dash" and dashes["sdpa, tensor parallel"] is None
        )
        hover = next(t.hovertext for t in figure.data if t.name == "sdpa, tensor parallel, predicted")
        assert "host-bound" in hover[2] and "host-bound" not in hover[1]
        assert [t.name for t in figure.data if t.showlegend is not False][-1] == "predicted"
    dotted = [t.name for t in devices.efficiency(series, {}).data if t.line.dash == "dot"]
    assert dotted == ["Amdahl, sdpa, tensor parallel"], "two counts of devices get no law drawn"
    bars = ranks.communication([record("sdpa-tp2")]).data
    assert [round(t.x[0], 1) for t in bars] == [37.5, 12.5, 12.5, 37.5]
    assert ranks.memory([record("sdpa-tp2")]).data[0].x == (400.0, 400.0)
    assert len(links_chart.by_size(environment()["links"]).data) == 6
    for empty in (
        devices.time([], {}),
        devices.efficiency([], {}),
        ranks.communication([]),
        ranks.memory([]),
    ):
        assert not empty.data
