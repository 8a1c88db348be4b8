"""A job of small steps, each of which can go wrong in a way that the spec names. Records are timed by
nothing: fixed figures."""

import ctypes
import os
import signal
import sys
import time

from fusescope.core.records import Record, Time, Times, case_key

TITLE = "Steps for tests"


def validate(spec):
    unknown = set(spec) - {"steps", "device", "pause_s", "ledger", "case_deadline_s"}
    if unknown:
        raise ValueError(f"steps takes no {', '.join(sorted(unknown))}")
    defaults = {"steps": ["ok"], "device": None, "pause_s": 0.0, "case_deadline_s": 60.0, "ledger": None}
    return defaults | spec


def name(spec):
    return "steps"


def device(spec):
    return spec["device"]


def run(spec, reporter):
    total = len(spec["steps"])
    for n, step in enumerate(spec["steps"]):
        name = case_key("steps", {"n": n}, "float32", "cpu")
        reporter.check()
        reporter.progress(n, total, f"step {n}")
        if (name, "me") in reporter.skip():
            continue
        if step != "crash with nothing in hand":
            reporter.doing(name, "me", spec["case_deadline_s"])
        if spec["ledger"]:
            with open(spec["ledger"], "a") as f:
                f.write(f"{n}\n")
        time.sleep(spec["pause_s"])
        _take(step, reporter)
        reporter.samples(name, "me", "eager", [1.0, 2.0])
        reporter.record(
            Record(
                "steps", "me", {"n": n}, "float32", "cpu", "ok", time_ms=Times(eager=Time(1, 1, 1, 10, True))
            )
        )
    reporter.progress(total, total, "all steps")


def _take(step, reporter):
    if step == "segfault":
        print("about to read address zero", file=sys.stderr, flush=True)
        ctypes.string_at(0)
    elif step == "crash with nothing in hand":
        os.kill(os.getpid(), signal.SIGABRT)
    elif step == "exit":
        os._exit(7)
    elif step == "hang":
        time.sleep(3600)
    elif step == "hang deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    elif step == "raise":
        raise RuntimeError("the third wheel came off")
    elif step == "poison":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    elif step == "torch":
        import torch

        a = torch.ones(512, 512)
        reporter.environment(product=float((a @ a).sum()), torch_file=torch.__file__)
    elif step == "print":
        print("printed by Python", flush=True)
        os.write(2, b"written by a library\n")
    elif step == "artifact":
        reporter.artifact("folder/made.txt").write_text("made by a job")
    elif step != "ok":
        raise ValueError(f"no step {step!r}")
