"""Draws every page and view once in a process of its own, for test_no_torch.py: what was drawn when torch
came, or what went wrong, is its last line.

    python draw_everything.py PROFILES_FOLDER
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FORBIDDEN = {"torch", "transformers", "triton"}
sys.path[:0] = [str(ROOT), str(HERE)]


def drawings(profiles: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(page, query) of every page and view, and of an operator of each kind."""
    import folders
    import profiles_on_disk

    from fusescope import ops
    from pages._ui.answer import views
    from pages._ui.app import frame
    from pages._ui.models import views as models_views
    from pages._ui.profiler.views import choice as profiler_views

    few = folders.few(profiles)
    yield from ((page, {}) for page in frame.pages())
    yield from (("runs", {"run": few["point"].id, "view": view}) for view in views.NAMES)
    kinds = {ops.load(op).__name__.rpartition(".")[0]: op for op in ops.names()}
    yield from (("kernels", {"op": op}) for op in kinds.values())
    yield from (("models", {"view": view}) for view in models_views.NAMES)
    yield "masks", {"view": "Scores", "seq": "64"}
    yield from (("fusion", {"part": part}) for part in ("Sweep", "Cost model", "Search"))
    traced = profiles_on_disk.trace(profiles, "20261120-120000-trace-aaaaaa").name
    yield from (("profiler", {"run": traced, "view": view}) for view in profiler_views.NAMES)
    yield "profiler", {"do": "import"}
    yield "profiler", {"do": "now", "op": "model:bert-base"}
    yield "runs", {"compare": f"{few['point'].id},{few['recorded'].id}"}


def problem(profiles: Path) -> str | None:
    """What one of the drawings did that it must not do."""
    import drawn_page
    from streamlit.testing.v1 import AppTest

    drawn_page.look_up_once(setattr)
    for page, query in drawings(profiles):
        at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=600)
        if page != "app":
            at.switch_page(f"pages/{page}.py")
        for key, value in query.items():
            at.query_params[key] = value
        at.run()
        shown = [f"{e.message} {e.stack_trace}" for e in at.exception]
        if shown:
            return f"{page} {query} shows {shown}"
        if loaded := sorted({m.partition(".")[0] for m in sys.modules} & FORBIDDEN):
            return f"{page} {query} imported {', '.join(loaded)}"
    maps = Path("/proc/self/maps").read_text()
    held = [name for name in ("libcuda.so", "libcudart") if name in maps]
    return f"mapped: {', '.join(held)}" if held else None


if __name__ == "__main__":
    try:
        said = problem(Path(sys.argv[1]))
    except BaseException:
        said = traceback.format_exc()
    print(said or "drawn", flush=True)
    os._exit(1 if said else 0)  # not by way of the threads that background work of the pages left behind
