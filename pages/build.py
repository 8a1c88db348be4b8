"""Does the extension build, what does the compiler say about each kernel, and what would fit on an SM?"""

import streamlit as st

from pages._ui.app import frame, redraw
from pages._ui.build import occupancy, page, source
from pages._ui.widgets import sides

ORDER = 1

with frame.page(__file__, __doc__) as state:
    form_box, result_box = sides.form_and_result()
    with form_box:
        targets = page.controls(state)
    with result_box:
        page.progress()
        page.verdict()
        page.cards(targets)
        page.resources(targets)
    st.divider()
    kernel = source.choose(state)
    occupancy.draw(state, kernel)
    redraw.part(state, lambda now: source.draw(now, kernel))
