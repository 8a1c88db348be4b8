"""Whole models: what they are and cost (no torch), and, in build, running and fused_encoder, how they are built and run.

A family is one file of ``families/``, found by name; the contract is in ARCHITECTURE.md.
"""

from backend.models.cases import lengths, validate
from backend.models.catalog import config, family, kind, named, names, op, parameters, title
from backend.models.costs import cost
from backend.models.families._base import PARTS, Config
from backend.models.listing import way, ways
from backend.models.register import Calls, register_attention
from backend.models.tree import Node, anatomy

__all__ = [
    "PARTS", "Calls", "Config", "Node", "anatomy", "config", "cost", "family", "kind", "lengths", "named", "names", "op",
    "parameters", "register_attention", "title", "validate", "way", "ways",
]  # fmt: skip
