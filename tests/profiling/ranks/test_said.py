"""What a kernel's arguments say of its collective, as text: by kind and value, though looked at once."""

import json
from types import SimpleNamespace

import pytest

from fusescope.profiling.chrome import collectives, events


def text(**said) -> dict | None:
    [found] = collectives.texts([SimpleNamespace(**dict.fromkeys(events.ARGS) | said)])
    return found and json.loads(found)


@pytest.mark.parametrize("order", [(1, True, 1.0), (True, 1.0, 1)])
def test_what_is_equal_and_of_another_kind_is_not_taken_for_it(order):
    found = [text(collective="allreduce", elements_in=n).get("elements_in") for n in order]
    assert found == [1 if type(n) is int else None for n in order]


def test_a_list_and_a_number_of_its_own():
    found = text(collective="allreduce", group_ranks=[0, 1], number="7")
    assert found == {"name": "allreduce", "group_ranks": "[0, 1]", "number": 7}
    assert text(collective="allreduce", number=True) == {"name": "allreduce"}
    assert text(collective="") is text(collective=3) is text() is None
