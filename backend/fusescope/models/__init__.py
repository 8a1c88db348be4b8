"""Whole models: what they are and cost (no torch), and, in build, running and fused_encoder, how they are
built and run.

A family is one file of ``families/``, found by name; the contract is in ARCHITECTURE.md.
"""

from fusescope.models.describe.cases import lengths, validate
from fusescope.models.describe.catalog import config, family, kind, named, names, op, parameters, title
from fusescope.models.describe.costs import cost
from fusescope.models.describe.family import PARTS, Config
from fusescope.models.describe.listing import way, ways
from fusescope.models.describe.tree import Node, anatomy
from fusescope.models.register import Calls, register_attention

__all__ = [
    "PARTS",
    "Calls",
    "Config",
    "Node",
    "anatomy",
    "config",
    "cost",
    "family",
    "kind",
    "lengths",
    "named",
    "names",
    "op",
    "parameters",
    "register_attention",
    "title",
    "validate",
    "way",
    "ways",
]
