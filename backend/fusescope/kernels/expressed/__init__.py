"""Kernels of attention compiled with a score expression (fusescope.core.score), each a library of its own,
built when it is first wanted and kept in the build cache."""

from fusescope.kernels.expressed.library import Wanted, load, loaded

__all__ = ["Wanted", "load", "loaded"]
