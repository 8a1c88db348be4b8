"""Uploading a boolean matrix: checked, then kept as a .npy file next to the runs, so that file:… works on
every page."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import streamlit as st

from fusescope import masks
from pages._ui.forms import mask_files
from pages._ui.widgets.text import file_name

TYPES = ("npy", "npz", "csv", "mtx")
MOST_MIB = 300
"""Largest file accepted: a 16384 × 16384 .npy has 256 MiB."""


def draw(take: Callable[[str], None]) -> None:
    """The uploader; a good file offers ``take(path)``, a bad one gets one sentence."""
    file = st.file_uploader(
        "Upload a boolean matrix",
        type=TYPES,
        max_upload_size=MOST_MIB,
        key="masks/upload",
        help="True or 1 = keep. .npy and .npz without pickled objects, .csv of 0 and 1, .mtx (Matrix Market)",
    )
    if file is None:
        return
    if st.session_state.get("masks/uploaded") == file.file_id:
        return
    try:
        path = keep(file.name, file.getbuffer())
    except (ValueError, OSError) as error:
        st.session_state.pop("masks/uploaded", None)
        st.error(str(error).replace("file:", ""))
        return
    st.session_state["masks/uploaded"] = file.file_id
    st.button(f"Show {path.name}", type="primary", on_click=take, args=(str(path),))


def keep(name: str, data) -> Path:
    """Check the bytes of a file by its ending and keep the matrix as .npy; the same content gives the same
    file. ValueError else."""
    ending = Path(name).suffix.lower()
    if ending.lstrip(".") not in TYPES:
        raise ValueError(f"{name} is none of {', '.join('.' + t for t in TYPES)}")
    if len(data) > MOST_MIB << 20:
        raise ValueError(f"{name} has {len(data) >> 20} MiB; the limit is {MOST_MIB} MiB")
    mask_files.folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=mask_files.folder(), prefix=".upload-") as work:
        raw = Path(work) / f"upload{ending}"
        raw.write_bytes(data)
        try:
            array = masks.from_file(str(raw)).array
        except ValueError as error:
            raise ValueError(str(error).replace(str(raw), name)) from None
        digest = hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()[:8]
        target = mask_files.folder() / f"{Path(file_name(name, 'mask')).stem}-{digest}.npy"
        if not target.is_file():
            part = Path(work) / "part.npy"
            np.save(part, array)
            part.replace(target)
    return target
