"""One execution mode of a model on one case, where a job takes an operator's implementation: op is
"model:<name>", impl the mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from fusescope.jobs.spec.common import DTYPE

_HOOKED = ("eager", "sdpa", "flash", "fusescope")
"""Modes that call Hugging Face's modules one by one: their kernels can be named by module. Compiled and
captured ones cannot."""


def is_model(op: object) -> bool:
    """Whether an operator's name is that of a model."""
    return isinstance(op, str) and op.startswith("model:")


def validate(whole: dict) -> dict:
    """The case completed; ValueError for what the model does not take, Unsupported for a mode
    that it does not have here."""
    from fusescope import models
    from fusescope.core.errors import Unsupported

    name, case = models.named(whole["op"]), whole["case"]
    DTYPE.check(whole["dtype"])
    case = models.validate(name, case)
    found = models.mode(name, whole["impl"], whole["device"])
    if found.reason:
        raise Unsupported(found.reason)
    return whole | {"case": case}


def prepare(spec: dict) -> Callable[[], object]:
    """A callable that runs one call of the mode. Needs torch and transformers.

    ``call.modules``: a context in which each kernel's module is named in a trace; one without effect for
    compiled and captured modes. ``call.eager``: for captured modes what was captured, called eagerly with its
    modules named; None for the others.
    """
    from fusescope import kernels, models
    from fusescope.jobs.profiled import eager_form
    from fusescope.models.run import build, modes
    from fusescope.profiling.collect.module_hooks import named

    if models.mode(models.named(spec["op"]), spec["impl"], spec["device"]).kind == "ours":
        kernels.load(spec["device"].split(":")[0])
    model = build.build(models.named(spec["op"]), spec["case"], spec["dtype"], spec["device"])
    inputs = build.inputs(model, spec["case"])
    run = modes.make(spec["impl"], model, inputs)

    def call():
        return run()

    call.backend = getattr(run, "backend", None)
    call.eager = eager_form.of_model(model, spec["impl"], inputs)
    call.modules = lambda: _named(model, spec["impl"], named)
    return call


@contextlib.contextmanager
def _named(model, mode: str, named):
    """Hooks on the very module that the mode calls."""
    if mode not in _HOOKED:
        yield
        return
    from fusescope.models.describe.modes import MODES
    from fusescope.models.run import modes

    with named(model.view(modes.view(MODES[mode]))):
        yield
