"""``fusescope VERB`` and ``python -m fusescope VERB``: the command line (backend/fusescope/cli).

Ctrl-C and closed standard streams are seen to before anything else is imported: an exception in the middle of
an import is a traceback, and a file that is opened as descriptor 2 would get what libraries print.
"""

import os
import signal
import sys


def main() -> int:
    """Run the command that this process was started with; its exit code."""
    heeded = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if heeded:
        signal.signal(signal.SIGINT, _nothing_begun)
    _open_streams()
    from fusescope import cli

    code = cli.main()
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is over but for the exit handlers
    return code


def _nothing_begun(_number, _frame) -> None:
    os.write(2, b"interrupted\n")
    os._exit(1)


def _open_streams() -> None:
    """Closed standard streams lead nowhere; what a stream cannot encode is written escaped."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))
    sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
