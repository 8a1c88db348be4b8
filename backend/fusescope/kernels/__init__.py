"""Building, reading compiler figures of, loading and calling the kernels under cuda/. Importing this imports
no torch.

from fusescope import kernels
kernels.call("add", a, b, impl="auto")
"""

from __future__ import annotations

import importlib

from fusescope.kernels.fakes import register_fakes

_LAZY = ("load", "call", "choose")

__all__ = ["call", "choose", "load", "register_fakes"]


def __getattr__(name: str):
    """The functions of ``fusescope.kernels.loading`` by name, fetched on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.loading"), name)
    globals()[name] = value
    return value
