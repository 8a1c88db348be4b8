"""The views of a profile: one function each, drawn only when chosen."""

from __future__ import annotations

from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler.data import Profile
from pages._ui.profiler.views import device, diff, memory, ncu, occupancy, overview, roofline, tables, time

VIEWS = {
    "Overview": overview.draw,
    "Time breakdown": time.breakdown,
    "Timeline": time.line,
    "Tables": tables.draw,
    "Occupancy": occupancy.draw,
    "Roofline": roofline.draw,
    "Nsight Compute": ncu.draw,
    "Memory": memory.draw,
    "Device": device.draw,
    "Compare": diff.draw,
    "Perfetto": time.perfetto_view,
}
NAMES = list(VIEWS)


def draw(state: url.State, found: Profile) -> None:
    """The choice of a view, and that view; ``draw(state, profile)`` of each says what it lacks."""
    chosen = fields.view(state, "view", NAMES)
    state.scopes.add(found.id)  # the other parameters of the URL belong to this run
    VIEWS[chosen](state, found)
