"""Default parameters that depend on the number of keys S; the performance goals of the kernels are stated
with them."""

from __future__ import annotations


def window(seq: int) -> int:
    """w: 32 below 512 keys, 64 below 2048, else 128."""
    return 32 if seq < 512 else 64 if seq < 2048 else 128


def global_tokens(seq: int) -> int:
    """g: 32 below 512 keys, else 64."""
    return 32 if seq < 512 else 64


def block(seq: int) -> int:
    """The block of BigBird's draws: 16 below 512 keys, else 64."""
    return 16 if seq < 512 else 64
