"""What does a mask look like, what does it cost to store, how much can it save, and how much of it do we
achieve?"""

import streamlit as st

from pages._ui.app import frame
from pages._ui.masks import page
from pages._ui.widgets import sides

ORDER = 3

with frame.page(__file__, __doc__) as state:
    top = st.container()
    form_box, result_box = sides.form_and_result("Settings")
    with form_box:
        choice = page.form(state)
    with top:
        page.gallery(page.chosen())
    with result_box:
        if choice:
            page.result(state, choice)
