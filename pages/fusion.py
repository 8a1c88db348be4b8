"""Which operators of a Transformer layer should be fused into one kernel, what is the code, and how much
faster is it?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.fusion import page

ORDER = 6

with frame.page(__file__, __doc__) as state:
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        setting = page.form(state)
    with right.container(key="result"):
        page.result(state, setting)
