"""What tests of the verbs import and profile share: a small trace, and the documented form of their JSON."""

import json

import pytest
from made_up import kernel, launch, op, trace, x

from fusescope.core.paths import ROOT


def valid(name: str, data) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from referencing import Registry, Resource

    known = {
        p.name: json.loads(p.read_text()) for p in (ROOT / "backend" / "fusescope" / "schemas").glob("*.json")
    }
    registry = Registry().with_resources([(name, Resource.from_contents(c)) for name, c in known.items()])
    jsonschema.Draft202012Validator(known[name], registry=registry).validate(data)


def example(path, scale=1.0):
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 90),
        op("aten::mm", 1, 20, 1),
        launch(1, 5, external=1),
    ]
    events += [
        kernel(1, 10, 8 * scale, "gemm<64>(float*)", external=1),
        op("aten::add", 30, 5, 2),
        launch(2, 31, external=2),
    ]
    return trace(path, [*events, kernel(2, 40, 2, "add(float*)", external=2)])
