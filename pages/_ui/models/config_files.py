"""A model by its config.json on the Models page: the path of one on this machine, or one that is uploaded and
kept next to the runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import streamlit as st

from fusescope import models
from fusescope.core import paths
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.widgets import elements
from pages._ui.widgets.text import file_name

OTHER = "config.json"
"""What the list of models calls every other architecture."""
MOST_MIB = 16


def title(name: str) -> str:
    """For the list of models."""
    return "by config.json" if name == OTHER else models.title(name)


def choose(state: url.State) -> str | None:
    """The chosen file's whole path; None, with what is missing said, until there is one that is a model."""
    given = fields.path(
        state,
        "config_file",
        "config.json or its folder",
        placeholder="/path/to/config.json",
        help="Any architecture of the installed transformers. Weights are random; those of a folder with "
        "*.safetensors are loaded.",
    )
    _upload(state)
    if not given:
        elements.note("Name a config.json on this machine, or upload one.")
        return None
    if given in state.unconfirmed:
        return None
    try:
        name = models.resolved(given)
        with st.spinner("transformers reads the configuration"):
            models.parameters(name)
        return name
    except ValueError as error:
        st.error(str(error))
        return None


def keep(name: str, data: bytes) -> Path:
    """The file of an uploaded configuration; the same content gives the same file. ValueError where
    transformers makes no model of it."""
    if len(data) > MOST_MIB << 20:
        raise ValueError(f"{name} has {len(data) >> 20} MiB; the limit is {MOST_MIB} MiB")
    folder = paths.profiles() / "configs"
    folder.mkdir(parents=True, exist_ok=True)
    stem = Path(file_name(name, "config")).stem
    target = folder / f"{stem}-{hashlib.sha256(data).hexdigest()[:8]}.json"
    if not target.is_file():
        part = target.with_suffix(".part.json")
        part.write_bytes(data)
        try:
            models.parameters(str(part))
            part.replace(target)
        except ValueError as error:
            raise ValueError(str(error).replace(str(part), name)) from None
        finally:
            part.unlink(missing_ok=True)
    return target


def _upload(state: url.State) -> None:
    file = st.file_uploader(
        "Upload a config.json", type="json", max_upload_size=MOST_MIB, key="models/config_upload"
    )
    if file is None or st.session_state.get("models/config_uploaded") == file.file_id:
        return
    try:
        path = keep(file.name, bytes(file.getbuffer()))
    except (ValueError, OSError) as error:
        st.error(str(error))
        return

    def take() -> None:
        st.session_state[state.key("config_file")] = str(path)
        st.session_state["models/config_uploaded"] = file.file_id

    st.button(f"Use {path.name}", type="primary", on_click=take)
