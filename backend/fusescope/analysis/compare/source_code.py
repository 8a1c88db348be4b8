"""Whether an implementation had the same source in two runs."""

from __future__ import annotations

from fusescope.core import naming, same_code
from fusescope.core.records import Run

_LIBRARIES = ("torch", "torch_cuda")
"""What a peer's code hangs on."""


def compared(op: str, impl: str, base: tuple[Run, str | None], other: tuple[Run, str | None]) -> str:
    """ "same" (or compiled to the same machine code), "edited" or "unknown", from each run and the hash that
    it recorded; a peer, which records none, counts by the versions of torch and its CUDA."""
    (run, before), (run_2, now) = base, other
    if before is not None and now is not None:
        return "same" if same_code.same(op, impl, before, now) else "edited"
    if before is not None or now is not None or naming.kind(impl) != "peer":
        return "unknown"
    libraries = [[one.environment.get(key) for key in _LIBRARIES] for one in (run, run_2)]
    if not libraries[0][0] or not libraries[1][0]:
        return "unknown"
    return "same" if libraries[0] == libraries[1] else "edited"
