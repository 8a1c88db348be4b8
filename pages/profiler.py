"""Why is it slow: what limits a program, where do time and memory go, and what changed between two
profiles?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.profiler import page

ORDER = 5

with frame.page(__file__, __doc__) as state:
    what = page.mode(state)
    with st.container(key="result"):
        page.draw(state, what)
