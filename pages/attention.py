"""How fast is attention for each mask and shape, which kernel is it, and against which peer?"""

from pages._ui.app import frame, redraw
from pages._ui.attention import page

ORDER = 1.5

with frame.page(__file__, __doc__) as state:
    redraw.part(state, page.draw)
