"""How much faster is one model on several devices, what holds it back, and which layout would be best on
more?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.scaling import form, page

ORDER = 4.5

with frame.page(__file__, __doc__) as state:
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        choice = form.draw(state)
    with right.container(key="result"):
        page.result(state, choice)
