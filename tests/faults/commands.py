"""The command line, called in this process, and what it may answer."""

from __future__ import annotations

import contextlib
import io
import re

from fusescope import cli
from tests.faults.case import hold, one_sentence


def call(*words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a verb: an answer, or a refusal in one sentence; never
    a traceback, nor a fault that was written to a file."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([str(w) for w in words])
        except SystemExit as end:  # argparse's own
            code = end.code
    said = err.getvalue()
    hold("Traceback" not in said and "its traceback is in" not in said, "raw", f"{words}: {said}")
    controls = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", re.sub(r"\r|\x1b\[K", "", out.getvalue() + said))
    hold(not controls, "words", f"{words}: control characters: {controls and controls[0]!r}")
    if code == 2:
        hold(said.startswith("error: ") and not out.getvalue(), "words", f"{words}: {said}")
        one_sentence(said)
    return code, out.getvalue(), said
