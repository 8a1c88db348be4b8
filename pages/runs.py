"""What was measured, when and where: find a run, open it, compare two, share one."""

from pages._ui.app import frame
from pages._ui.runs import compare, run_detail, run_library

ORDER = 7

with frame.page(__file__, __doc__) as state:
    if two := compare.wanted(state):
        compare.draw(state, *two)
    elif run_id := run_detail.wanted(state):
        run_detail.draw(state, run_id)
    else:
        run_library.draw(state)
