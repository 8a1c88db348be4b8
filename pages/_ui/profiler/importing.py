"""Importing anyone's profile: uploaded, or named by its path on the machine the app runs on."""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path

import streamlit as st

from fusescope.core import paths
from fusescope.jobs import submit
from pages._ui.app import callbacks, run_data, url
from pages._ui.forms import fields, linked
from pages._ui.profiler import data
from pages._ui.widgets.text import file_name, run_name

TYPES = ("json", "gz", "sqlite", "csv", "ncu-rep", "pickle", "pkl")
MOST_MIB = 500
_DAY_S = 86400
_NONE, _FILE = "none", "file"


def folder() -> Path:
    """Where an upload waits for its import, which removes it."""
    return paths.profiles() / ".uploads"


def draw(state: url.State) -> None:
    """The form; a file that is no profile is refused in one sentence before anything is started."""
    st.markdown(
        "**Chrome traces** (torch.profiler any version, AMD, Triton; .json, .json.gz), **Nsight Systems** "
        "(.sqlite), **Nsight Compute** (.csv, .ncu-rep) and torch's **memory snapshots** (.pickle). Several "
        "traces of one job, or a folder of them, become one profile of many ranks. Nothing in a file is "
        "executed."
    )
    left, right = st.columns(2, gap="medium")
    with right:
        line, below = st.container(), st.container()
        keep = st.toggle(
            "keep the file in the run even if large",
            key="profiler/keep",
            help="Perfetto opens the kept file. Compressed files, and others up to 256 MiB, are always kept",
        )
        captured = _captured()
    with left:
        upload = st.file_uploader(
            f"a file from your computer, or a trace per rank, up to {MOST_MIB} MiB each",
            type=TYPES,
            accept_multiple_files=True,
            max_upload_size=MOST_MIB,
            key="profiler/upload",
        )
        if upload:
            st.button(
                "Import the upload" if len(upload) == 1 else "Import the uploads",
                type="primary",
                key="profiler/import-upload",
                on_click=callbacks.careful(_uploaded),
                args=(upload, keep, captured),
            )
    _path(state, line, below, keep, captured)


def _path(state: url.State, line, below, keep: bool, captured: str | None) -> None:
    """The field for a path with its button, a form so that Enter imports. What a link names must be confirmed
    first, in ``below``: until then no form, so that another path can be typed and Enter only takes it."""
    key = state.seed(_FILE, "")
    with below:
        linked.ask(state, key, [st.session_state[key].strip()])
    waits = bool(state.unconfirmed)
    with line, st.container(key="import-path") if waits else st.form("profiler/path", border=False):
        wide, narrow = st.columns([5, 1.2], gap="small", vertical_alignment="bottom", wrap=False)
        fields.text(
            state,
            _FILE,
            "or a path on this machine: a file, or a folder with a trace per rank",
            box=wide,
            placeholder="/path/to/trace.json.gz",
            help="A gigabyte (4 million events) takes about half a minute",
        )
        button = narrow.button if waits else narrow.form_submit_button
        button(
            "Import",
            type="primary",
            key="profiler/import",
            disabled=waits,
            on_click=callbacks.careful(_named),
            args=(key, keep, captured),
        )


def _captured() -> str | None:
    """The eager run that a trace's CUDA graphs were captured from, for linking their kernels."""
    with st.expander("The file contains replayed CUDA graphs"):
        options = [_NONE, *(i for i in data.offered() if "kernels" in data.load(i).tables)]
        names = {i: _NONE if i == _NONE else f"{run_name(run_data.read(i))} ({i})" for i in options}
        chosen = st.selectbox(
            "eager run they were captured from",
            options,
            key="profiler/captured",
            format_func=names.get,
            help="Replayed kernels name no operator; they take it from that run, in order",
        )
    return None if chosen == _NONE else chosen


def _named(key: str, keep: bool, captured: str | None) -> None:
    path = str(st.session_state[key]).strip()
    if not path:
        raise ValueError("type the path of a file or folder first")
    spec = {"keep": keep or None, "captured": captured, "file": path}
    data.opened(submit.submit("import", spec, title=Path(path).name))


def _uploaded(uploads: list, keep: bool, captured: str | None) -> None:
    spec = {"keep": keep or None, "captured": captured}
    files = receive([(u.name, u.getbuffer()) for u in uploads])
    home = files[0].parent
    if len(files) == 1:
        spec |= {"file": str(files[0])}
        title = uploads[0].name
    else:
        spec |= {"file": str(home), "files": list(map(str, files))}
        title = f"{len(files)} ranks"
    try:
        data.opened(submit.submit("import", spec | {"discard": True}, title=title))
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def receive(uploads: list[tuple]) -> list[Path]:
    """(name, bytes) of uploads as files of one folder that wait for their import; leftovers of a day ago are
    removed. ValueError: two of one name."""
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    for old in home.iterdir():
        if time.time() - old.stat().st_mtime > _DAY_S:
            shutil.rmtree(old, ignore_errors=True)
    own = home / secrets.token_hex(6)
    files = [own / file_name(name, "upload") for name, _ in uploads]
    if len(set(files)) < len(files):
        raise ValueError("two of the files have the same name: give each rank's trace a name of its own")
    own.mkdir()
    for file, (_, content) in zip(files, uploads):
        file.write_bytes(content)
    return files
