"""What must fit on one line at 1440 pixels."""

import pytest
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("address", "role", "names"),
    [
        ("/?about=llama3-8b", "combobox", ("What is fastest for", "device")),
        ("/?about=attention", "combobox", ("What is fastest for", "device")),
        ("/models", "radio", ("Table", "Reproduce")),
    ],
)
def test_a_row_of_controls_is_one_row(recorded_server, page, address, role, names):
    """The box of the device, and the last of the views, stood alone on a line of their own."""
    page.goto(recorded_server.address + address)
    settled(page)
    first, last = (page.get_by_role(role, name=name, exact=True).first.bounding_box() for name in names)
    assert first["y"] == last["y"], (first, last)
