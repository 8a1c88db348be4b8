"""What workers of a cluster do in tests instead of measuring: simulated bodies of orders, imported by name in
the workers' processes."""

import os
import signal
import time

from fusescope.core.records import Record, Time, Times
from fusescope.jobs.cluster import answers, at_worker

_LATE_S = 0.0004  # that a sleep may take too long


def who(device):
    """A worker that has the device; "cuda:0" nobody has."""
    if device != "cpu":
        raise ValueError(f"there is no device {device!r} here; there is cpu")
    name = os.environ.get("TEST_DEVICE", "a CPU")
    about = {"host": "host", "pid": os.getpid(), "user": os.getuid(), "version": _version()}
    return about | {"environment": {"device_name": name, "device_uuid": None, "torch": "2", "driver": None}}


def _version():
    import fusescope

    return fusescope.__version__


def simulate(order):
    """Each unit takes spec["ms"]; one with "kill" ends its worker, one with "fail" cannot be measured, one
    with "raise" is a body's own mistake, one with "instead" answers that for its record."""
    from distributed import get_worker

    worker, measured, said = get_worker(), [], 0.0
    task, end = worker.get_current_task(), time.monotonic() + order["limit_s"]
    for unit in order["units"]:
        if measured and time.monotonic() > end:
            break
        spec = unit["spec"]
        if time.monotonic() - said > at_worker.BEGIN_EVERY_S:
            said = time.monotonic()
            worker.log_event(order["topic"], {"task": task, "unit": unit["key"], "text": ""})
        if spec.get("kill"):
            time.sleep(0.1)  # what it said is on its way
            os.kill(os.getpid(), signal.SIGKILL)
        if spec.get("fail"):
            return answers.make(order, measured, spec["fail"])
        if spec.get("raise"):
            raise OSError(spec["raise"])
        begun = time.monotonic()
        time.sleep(max(0.0, spec["ms"] / 1e3 - _LATE_S))
        while time.monotonic() - begun < spec["ms"] / 1e3:
            pass
        if ledger := spec.get("ledger"):
            with open(ledger, "a") as f:
                f.write(f"{unit['key']}\n")
        record = Record(
            "add",
            "eager",
            {"n": spec["n"]},
            "float32",
            "cpu",
            "ok",
            time_ms=Times(eager=Time(1.0, 1.0, 1.0, 10, True)),
        )
        line = {"case_key": record.case_key, "impl": "eager", "mode": "eager", "milliseconds": [1.0]}
        about = [], {"pid": os.getpid()}, time.monotonic() - begun
        measured.append(answers.Measured(unit["key"], [record], [line], *about))
    answer = answers.make(order, measured)
    for unit, found in zip(order["units"], answer["found"], strict=False):
        found["records"][0][0] = unit["spec"].get("instead", found["records"][0][0])
    return answer
