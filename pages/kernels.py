"""Which implementation is right, which is fastest, than what, and how sure is that?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.kernels import page

with frame.page(__file__, __doc__) as state:
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        op, spec, pressed = page.form(state)
    with right.container(key="result"):
        page.result(state, op, spec, pressed)
