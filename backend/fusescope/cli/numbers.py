"""Numbers on the command line: checked where they are parsed, by the rules that a job's specification has."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from fusescope.core.schema import Parameter

LARGEST = 2**31 - 1  # what sizes and counts are kept in


def integer(low: int = 0, high: int = LARGEST) -> Callable[[str], int]:
    """``type=`` of an option that takes an integer within bounds."""
    return partial(_read, Parameter("the value", "int", low=low, high=high))


def seconds() -> Callable[[str], float]:
    """``type=`` of an option that takes a time above 0, in seconds."""
    return partial(_read, Parameter("the value", "float", above=0))


def percent(below: float) -> Callable[[str], float]:
    """``type=`` of an option that takes a percentage above 0."""
    return partial(_read, Parameter("the value", "float", above=0, high=below))


def seed() -> Callable[[str], int]:
    """``type=`` of an option that takes a seed: what JSON, NumPy and torch all hold exactly."""
    return integer(0, 2**53 - 1)


def _read(parameter: Parameter, text: str):
    try:
        return parameter.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("the value ")) from None
