"""Does the extension build, what does the compiler say about each kernel, and what would fit on an SM?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.build import occupancy, page, source

ORDER = 1

with frame.page(__file__, __doc__) as state:
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        targets = page.controls(state)
    with right.container(key="result"):
        page.progress()
        page.verdict()
        page.cards(targets)
        page.resources(state, targets)
    st.divider()
    kernel = source.choose(state)
    occupancy.draw(state, kernel)
    source.draw(state, kernel)
