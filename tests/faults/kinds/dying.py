"""A job of another kind that kills its body, or its worker, at some words: calls of the reporter."""

import os
import signal
import time

from fusescope.jobs import kinds

TITLE = "Dying, for tests"


def validate(spec):
    return spec | {"spec": kinds.load(spec["kind"]).validate(spec["spec"])}


def name(spec):
    return f"dying {spec['kind']}"


def device(spec):
    return kinds.load(spec["kind"]).device(spec["spec"])


def run(spec, reporter):
    counting = _Counting(reporter, spec["words"], spec["who"])
    try:
        kinds.load(spec["kind"]).run(spec["spec"], counting)
    finally:
        reporter.artifact("words").write_text(str(counting.words))


class _Counting:
    """The reporter; the first body of a run, or its worker, is killed at the word of the first number (from
    0), the next at that of the second, and so on."""

    def __init__(self, reporter, words, who):
        self._reporter, self._who, self.words = reporter, who, 0
        self._died = reporter.artifact("died")
        deaths = len(self._died.read_bytes()) if self._died.exists() else 0
        self._word = words[deaths] if deaths < len(words) else None

    def __getattr__(self, name):
        method = getattr(self._reporter, name)

        def said(*args, **named):
            if self.words == self._word:
                self._die()
            self.words += 1
            return method(*args, **named)

        return said

    def _die(self):
        with open(self._died, "ab") as died:
            died.write(b"x")
        os.kill(os.getpid() if self._who == "body" else os.getppid(), signal.SIGKILL)
        time.sleep(60)
