"""Which implementation is correct, which is fastest, by how much, and how sure are we?"""

import streamlit as st

from pages._ui.answer import matching
from pages._ui.app import frame
from pages._ui.kernels import form, page

ORDER = 2

with frame.page(__file__, __doc__) as state:
    matching.fill(state, "bench", page.able)
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        op, spec, pressed = form.draw(state)
    with right.container(key="result"):
        page.result(state, op, spec, pressed)
