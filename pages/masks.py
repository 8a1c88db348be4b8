"""What does a mask look like, what does it cost to store, how much can it save, and how much of it do we
achieve?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.masks import page

ORDER = 3

with frame.page(__file__, __doc__) as state:
    page.gallery()
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    with left.container(border=True, key="form"):
        choice = page.form(state)
    with right.container(key="result"):
        if choice:
            page.result(state, choice)
