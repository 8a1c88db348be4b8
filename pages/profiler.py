"""Why is it slow: what limits a program, where its time and memory go, and what changed between two profiles?"""

import streamlit as st

from pages._ui import frame, profiler

with frame.page(__file__, __doc__) as state:
    what = profiler.mode(state)
    with st.container(key="result"):
        profiler.draw(state, what)
