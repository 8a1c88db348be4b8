"""Names of GPU architectures: sm_86, sm_90a; what runs where."""

from __future__ import annotations

import re


def capability(arch: str) -> tuple[int, int]:
    """(major, minor) of sm_86, sm_90a, sm_100f; ValueError for anything else."""
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if not match:
        raise ValueError(
            "an architecture is written sm_ and its compute capability, "
            f"such as sm_80 or sm_90a, not {arch!r}"
        )
    return int(match[1]), int(match[2])


def arch_of(major: int, minor: int) -> str:
    """The architecture to build for a GPU of this compute capability: with all of its own instructions ("a")
    from 9.0 on."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def normal(arch: str) -> str:
    """sm_90 as sm_90a (every 9.0 GPU has the "a" instructions), others as they are."""
    capability(arch)
    return "sm_90a" if arch == "sm_90" else arch


def runs_on(archs: tuple[str, ...], arch: str) -> bool:
    """Whether code built for one of ``archs`` runs on a GPU of ``arch`` (same major, minor not lower; "a"
    targets exactly)."""
    major, minor = capability(arch)
    for built in archs:
        built_major, built_minor = capability(built)
        if built_major == major and (built_minor == minor if built.endswith("a") else built_minor <= minor):
            return True
    return False
