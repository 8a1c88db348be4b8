"""Faults on purpose, class by class: what may be lost, what state is said, what strangers can do.

``python -m tests.faults`` (``make test-faults``) tries every class for its share of a time and prints a
table. A class is one file of ``classes/``, found by being there; case.py says what such a file holds.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Helpers of other tests import each other by name, as pytest lets them.
sys.path += [str(TESTS / room) for room in ("store", "jobs", "guard", "profiling", "cluster")]
