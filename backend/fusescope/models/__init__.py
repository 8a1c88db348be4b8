"""Whole models: what they are and cost in ``describe/`` (no torch), how they are built and run in ``run/``.

A family is one file of ``families/``, found by name; its contract is describe/family.py.
"""

from fusescope.models.by_config.config_file import is_path, resolved
from fusescope.models.describe.cases import lengths, validate
from fusescope.models.describe.catalog import config, family, kind, named, names, op, parameters, title
from fusescope.models.describe.costs import cost
from fusescope.models.describe.family import PARTS, Config
from fusescope.models.describe.memory import check as check_memory
from fusescope.models.describe.memory import reduced
from fusescope.models.describe.modes import mode, modes
from fusescope.models.describe.relatives import apart, relatives
from fusescope.models.describe.tree import Node, anatomy, total
from fusescope.models.generating import KVCache, generate
from fusescope.models.register import Calls, register_attention

__all__ = [
    "PARTS",
    "Calls",
    "Config",
    "KVCache",
    "Node",
    "anatomy",
    "apart",
    "check_memory",
    "config",
    "cost",
    "family",
    "generate",
    "is_path",
    "kind",
    "lengths",
    "mode",
    "modes",
    "named",
    "names",
    "op",
    "parameters",
    "reduced",
    "register_attention",
    "relatives",
    "resolved",
    "title",
    "total",
    "validate",
]
