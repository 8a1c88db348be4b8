"""How fast is a whole model in every way to run it, how exact is each, and where do time and parameters go?"""

import streamlit as st

from pages._ui import frame, models

with frame.page(__file__, __doc__) as state:
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        choice = models.form(state)
    with right.container(key="result"):
        models.result(state, choice)
