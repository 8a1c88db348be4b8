"""A job of another kind that kills its body, or its worker, at one word: a call of the reporter."""

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
    counting = _Counting(reporter, spec["word"], spec["who"])
    try:
        kinds.load(spec["kind"]).run(spec["spec"], counting)
    finally:
        reporter.artifact("words").write_text(str(counting.words))


class _Counting:
    """The reporter; at the word of that number, from 0, the process is killed. Once in the life of a run."""

    def __init__(self, reporter, word, who):
        self._reporter, self._word, self._who, self.words = reporter, word, who, 0

    def __getattr__(self, name):
        method = getattr(self._reporter, name)

        def said(*args, **named):
            if self.words == self._word:
                self._die()
            self.words += 1
            return method(*args, **named)

        return said

    def _die(self):
        died = self._reporter.artifact("died")
        if died.exists():
            return
        died.touch()
        os.kill(os.getpid() if self._who == "body" else os.getppid(), signal.SIGKILL)
        time.sleep(60)
