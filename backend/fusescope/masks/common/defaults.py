"""Parameters that count positions, and defaults that depend on the number of keys S; the performance goals of
the kernels are stated with them."""

from __future__ import annotations

from collections.abc import Callable

from fusescope.core.schema import Parameter

LARGEST = 1 << 20
"""No length or window above this: the number of a drawn cell holds 20 bits of row and of column."""


def positions(
    name: str,
    default: int | Callable[[int], int],
    help: str,
    default_help: str = "",
    low: int = 0,
    high: int = LARGEST,
    typical: tuple[int, ...] = (),
) -> Parameter:
    """A mask's parameter that is an integer, by default 0 … 2^20. default_help says in words what a default
    gives that is a function of S."""
    return Parameter(name, "int", default, help, low, high, typical, default_help=default_help)


def window(seq: int) -> int:
    """w: 32 below 512 keys, 64 below 2048, else 128."""
    return 32 if seq < 512 else 64 if seq < 2048 else 128


def global_tokens(seq: int) -> int:
    """g: 32 below 512 keys, else 64."""
    return 32 if seq < 512 else 64


def block(seq: int) -> int:
    """The block of BigBird's draws: 16 below 512 keys, else 64."""
    return 16 if seq < 512 else 64
