"""A sweep loads, and builds, the kernels of its segments and no others."""

import re

from fusescope import ops
from fusescope.measure import machine
from fusescope.search.measuring.loader import Loader
from fusescope.search.scheme import templates


def test_a_sweep_loads_the_families_that_its_templates_import(monkeypatch):
    loaded = []
    monkeypatch.setattr(machine, "load_kernels", lambda *_, only: loaded.extend(only))
    setting = type("Setting", (), {"device": "cpu"})
    Loader(setting, None, None).kernels(lambda text: None)
    imported = {re.search(r"import (\w+)$", t.imports)[1] for t in templates.TEMPLATES}
    assert set(loaded) == {ops.load(name).FAMILY for name in imported} and len(loaded) == len(set(loaded))
