"""The exceptions that callers are meant to tell apart.

Bad input is a ``ValueError`` or ``TypeError`` naming the rule, the value given and what is supported;
the classes here exist only where a caller acts on the difference.
"""


class Unsupported(ValueError):
    """The request is well formed, but this implementation or device does not take it; the text is the reason
    shown."""


class BuildError(RuntimeError):
    """The extension could not be built; ``causes`` holds the doctor's findings, most likely first."""

    def __init__(self, message: str, causes: tuple = (), log: str = ""):
        super().__init__(message)
        self.causes = causes
        self.log = log


class Cancelled(Exception):
    """A stop was requested; raised by ``Reporter.check()`` and let through by job kinds."""


class RunError(Exception):
    """A run folder that cannot be read or written: torn, from a newer version, or gone; the text says which
    and what to do."""
