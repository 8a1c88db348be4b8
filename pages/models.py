"""How fast is a whole model in every execution mode, how accurate is each, and where do time and parameters
go?"""

from pages._ui.answer import matching
from pages._ui.app import frame
from pages._ui.forms import fields
from pages._ui.models import form, matrix, page
from pages._ui.widgets import sides

ORDER = 4

with frame.page(__file__, __doc__) as state:
    if fields.view(state, "show", ("one model", "all models")) == "all models":
        matrix.draw(state)
    else:
        matching.fill(state, "model", page.able)
        form_box, result_box = sides.form_and_result()
        with form_box:
            choice = form.draw(state)
        with result_box:
            if choice is not None:
                page.result(state, choice)
            else:
                page.result_alone(state)
