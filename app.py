"""Builds, checks, times and profiles Transformer CUDA kernels: which is correct, which is fastest, why."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages._ui.app import warm
from pages._ui.guard.entrance import Entrance
from pages._ui.routes import assets, downloads, front, perfetto

if get_script_run_ctx(suppress_warning=True) is None:
    # Imported by the server, not run for a visitor: the application, its own routes, the door to all of it.
    entrance = Entrance()
    app = st.App(
        __file__,
        routes=[*front.routes(), *downloads.routes(), *perfetto.routes()],
        middleware=[*entrance.middleware(), *assets.middleware()],
        exception_handlers=entrance.failures(),
        lifespan=entrance.lifespan(warm.lifespan),
    )
else:
    from pages._ui.app import frame
    from pages._ui.home import page

    with frame.page(__file__, __doc__) as state:
        page.draw(state)
