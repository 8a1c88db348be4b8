"""Which operators of a Transformer layer should be fused into one kernel, what is the code, and how much
faster is it?"""

from pages._ui.app import frame
from pages._ui.fusion import page
from pages._ui.widgets import sides

ORDER = 6

with frame.page(__file__, __doc__) as state:
    form_box, result_box = sides.form_and_result("Settings")
    with form_box:
        setting = page.form(state)
    with result_box:
        page.result(state, setting)
