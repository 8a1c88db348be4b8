"""How much faster is one model on several devices, what holds it back, and which layout would be best on
more?"""

from pages._ui.app import frame
from pages._ui.scaling import form, page
from pages._ui.widgets import sides

ORDER = 4.5

with frame.page(__file__, __doc__) as state:
    form_box, result_box = sides.form_and_result()
    with form_box:
        choice = form.draw(state)
    with result_box:
        page.result(state, choice)
