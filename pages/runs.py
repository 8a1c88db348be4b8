"""What was measured, when and where: find a run, open it, compare any number, share one."""

from pages._ui.app import frame
from pages._ui.forms import fields
from pages._ui.runs import compare, regressions, run_detail, run_library

ORDER = 7

with frame.page(__file__, __doc__) as state:
    if compared := compare.wanted(state):
        compare.draw(state, compared)
    elif run_id := run_detail.wanted(state):
        run_detail.draw(state, run_id)
    elif fields.view(state, "view", ("List", "Regressions")) == "List":
        run_library.draw(state)
    else:
        regressions.draw(state)
