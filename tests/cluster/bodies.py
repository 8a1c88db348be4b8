"""What workers of a cluster do in tests instead of measuring: simulated bodies of orders, imported by name in
the workers' processes."""

import os
import signal
import time

from fusescope.core.records import Record, Time, Times
from fusescope.jobs.cluster import answers

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

    worker, found, said = get_worker(), [], 0.0
    task, end = worker.get_current_task(), time.monotonic() + order["limit_s"]
    for unit in order["units"]:
        if found and time.monotonic() > end:
            break
        spec = unit["spec"]
        if time.monotonic() - said > 0.25:
            said = time.monotonic()
            worker.log_event(order["topic"], {"task": task, "unit": unit["key"], "text": ""})
        if spec.get("kill"):
            time.sleep(0.1)  # what it said is on its way
            os.kill(os.getpid(), signal.SIGKILL)
        if spec.get("fail"):
            return {"found": found, "error": spec["fail"]}
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
        made = answers.make(order, unit["key"], [record], [line], *about)
        made["records"][0][0] = spec.get("instead", made["records"][0][0])
        found.append(made)
    return {"found": found, "error": None}
