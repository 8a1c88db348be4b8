"""The views of a profile: one function each, drawn only when chosen."""

from __future__ import annotations

from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler import data
from pages._ui.profiler.data import Profile
from pages._ui.profiler.views import (
    device,
    diff,
    memory,
    ncu,
    occupancy,
    overview,
    ranks,
    roofline,
    tables,
    time,
)

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
OF_RANKS = {
    "Time by rank": ranks.by_rank,
    "Collectives": ranks.of_collectives,
    "Kernels by rank": ranks.of_kernels,
    "Critical path": ranks.of_path,
}
"""Views of a profile of many ranks as a whole; each rank has the others, but those that need more than its
trace."""
_OF_ONE = {n: v for n, v in VIEWS.items() if n not in ("Nsight Compute", "Device", "Compare")}
_ALL = "all"


def draw(state: url.State, found: Profile) -> None:
    """The choice of a view, and that view; ``draw(state, profile)`` of each says what it lacks."""
    numbers = [r["rank"] for r in (found.summary or {}).get("ranks", ())]
    views = VIEWS
    if numbers:
        ways = [_ALL, *map(str, numbers)]
        chosen = fields.pick(
            state,
            "rank",
            "rank",
            ways,
            format_func=lambda r: "all ranks" if r == _ALL else f"rank {r}",
            width=160,
        )
        views = OF_RANKS if chosen == _ALL else _OF_ONE
        found = found if chosen == _ALL else data.of_rank(found, int(chosen))
    chosen = fields.view(state, "view", list(views))
    state.scopes.add(found.id)  # the other parameters of the URL belong to this run
    views[chosen](state, found)
