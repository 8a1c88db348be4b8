"""How fast is a whole model in every execution mode, how accurate is each, and where do time and parameters
go?"""

import streamlit as st

from pages._ui.answer import matching
from pages._ui.app import frame
from pages._ui.forms import fields
from pages._ui.models import form, matrix, page

ORDER = 4

with frame.page(__file__, __doc__) as state:
    if fields.view(state, "show", ("one model", "all models")) == "all models":
        matrix.draw(state)
    else:
        matching.fill(state, "model", page.able)
        left, right = st.columns([1, 2.35], gap="medium", wrap=False)
        with left.container(border=True, key="form"):
            choice = form.draw(state)
        with right.container(key="result"):
            if choice is not None:
                page.result(state, choice)
