"""Which implementation is correct, which is fastest, by how much, and how sure are we?"""

from pages._ui.answer import matching
from pages._ui.app import frame
from pages._ui.kernels import form, own_function, page
from pages._ui.widgets import sides

ORDER = 2

with frame.page(__file__, __doc__) as state:
    if own_function.mode(state):
        own_function.draw(state)
    else:
        matching.fill(state, "bench", page.able)
        form_box, result_box = sides.form_and_result()
        with form_box:
            op, spec, pressed = form.draw(state)
        with result_box:
            page.result(state, op, spec, pressed)
