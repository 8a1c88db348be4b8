"""Why is it slow: what limits a program, where its time and memory go, and what changed between two
profiles?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.profiler import page

with frame.page(__file__, __doc__) as state:
    what = page.mode(state)
    with st.container(key="result"):
        page.draw(state, what)
