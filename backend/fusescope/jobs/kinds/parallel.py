"""A model over several devices: tensor, pipeline and data parallel, checked and timed by one process per
device. The job behind the Scaling page and ``parallel``."""

from __future__ import annotations

import importlib.util
import shutil

from fusescope.core.machine import environment
from fusescope.core.schema import Parameter
from fusescope.jobs.spec import comparison
from fusescope.jobs.spec.common import DTYPE

TITLE = "Scaling"
PARAMETERS = (
    Parameter(
        "micro_batches", "int", 4, "pieces that a pipeline cuts a replica's batch into", low=1, high=1024
    ),
    Parameter("weak", "bool", False, "also with a batch that grows with the ranks"),
    Parameter("links", "bool", True, "measure the collectives between the ranks"),
    Parameter("probes", "bool", True, "time a rank's share on one device, for predictions"),
    Parameter("trace", "text", None, "one of impls, of several ranks: a trace of each of them"),
)
DEFAULTS = {"cache": "warm"}


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with op "model:NAME", complete cases, and as impls attentions, each alone (one
    device) or with a layout (sdpa-tp2); the baseline, one device, is among them. Besides PARAMETERS.
    ValueError: the rule, the value given, what is supported; more ranks than devices, sizes that a layout
    does not divide."""
    from fusescope import models
    from fusescope.models.describe import layouts, memory

    given = dict(spec)
    impls = given.get("impls")
    if given.get("baseline") is None and isinstance(impls, list | tuple) and impls:
        given["baseline"] = layouts.named(str(impls[0]))[0]
    whole = comparison.complete("a parallel comparison", DEFAULTS | given, PARAMETERS)
    if whole["processes"] != 1 or whole["cache"] != "warm":
        raise ValueError("a parallel comparison is measured with warm caches in one set of processes")
    DTYPE.check(whole["dtype"])
    model = models.named(whole["op"])
    if layouts.named(whole["baseline"])[1].ranks > 1:
        raise ValueError(f"the baseline runs on one device, such as sdpa, not {whole['baseline']}")
    whole["cases"] = [models.validate(model, case) for case in whole["cases"]]
    for impl in whole["impls"]:
        attention, layout = layouts.named(impl)
        for case in whole["cases"]:
            layouts.check(model, case, layout, whole["micro_batches"], attention)
            if whole["weak"]:
                grown = models.validate(model, {**case, "batch": case["batch"] * layout.ranks})
                layouts.check(model, grown, layout, whole["micro_batches"], attention)
    if whole["trace"] is not None:
        _check_trace(whole)
    for case in whole["cases"]:
        models.check_memory(model, case, whole["dtype"], whole["device"])
    _check_devices(whole["device"], ranks(whole))
    for case in whole["cases"]:
        memory.check_host(model, case, whole["dtype"], whole["device"], ranks(whole))
    return whole


def ranks(spec: dict) -> int:
    """How many processes the spec needs."""
    from fusescope.models.describe import layouts

    return max(layouts.named(impl)[1].ranks for impl in spec["impls"])


def _check_trace(whole: dict) -> None:
    from fusescope.models.describe import layouts

    several = [impl for impl in whole["impls"] if layouts.named(impl)[1].ranks > 1]
    if whole["trace"] not in several:
        choice = f"one of {', '.join(several)}" if several else "and all of these run on one device"
        raise ValueError(f"trace is a layout of several ranks, {choice}, not {whole['trace']}")
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError("a trace becomes Parquet tables, but pyarrow is not installed: pip install pyarrow")


def _check_devices(device: str, count: int) -> None:
    if device == "cpu":
        there, what = max(2, environment.cpu_threads()), "CPU thread"
        start = 0
    else:
        there, what = sum(d.startswith("cuda") for d in environment.devices()), "GPU"
        start = int(device.partition(":")[2])
    if start + count > there:
        raise ValueError(
            f"the layouts need {count} ranks from {device} on, one for each device; "
            f"here {'is' if there == 1 else 'are'} {there} {what}{'' if there == 1 else 's'}"
        )


def name(spec: dict) -> str:
    return comparison.name(spec, "layout")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.jobs.parallel import launch

    launch.run(spec, ranks(spec), reporter)
    if spec["trace"] is not None:
        _profile(spec["trace"], reporter)


def _profile(impl: str, reporter) -> None:
    """The traces that the ranks left, as one profile of many ranks."""
    from fusescope.jobs.parallel import TRACES
    from fusescope.profiling.ranks import choose, importer

    home = reporter.artifact(f"{TRACES}/x").parent
    try:
        files, _ = choose.ranks(choose.files(home), named=True)
    except ValueError as e:
        reporter.log(f"{impl} has no profile: {e}")
        return

    def progress(share: float, text: str) -> None:
        reporter.check()
        reporter.progress(int(100 * share), 100, f"traces of {impl}: {text}")

    summary = importer.load(files, reporter.artifact, progress, keep=True, notes=[f"calls of {impl}"])
    for note in summary["notes"]:
        reporter.log(note)
    shutil.rmtree(home)
    reporter.progress(100, 100, "done")
