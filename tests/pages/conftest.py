"""Every page drawn through the app's own entrance, in this process, without a browser."""

from __future__ import annotations

from pathlib import Path

import drawn_page
import folders
import pytest
import streamlit as st
from drawn_page import calm
from streamlit.testing.v1 import AppTest

from fusescope.core.machine import load

APP = Path(__file__).resolve().parents[2] / "app.py"


@pytest.fixture(autouse=True, scope="module")
def _slow_answers_once():
    """What is the same for every drawing is looked up once per file, and restored for other tests."""
    with pytest.MonkeyPatch.context() as patch:
        drawn_page.look_up_once(patch.setattr)
        patch.setattr(load.Load, "read", lambda self: None)  # pages do not say how busy the test machine is
        yield


@pytest.fixture(autouse=True)
def _fresh_caches():
    st.cache_data.clear()


@pytest.fixture(scope="session")
def home_of_recorded(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "recorded").symlink_to(APP.parent / "profiles" / "recorded")
    return home


@pytest.fixture
def recorded(profiles, home_of_recorded, monkeypatch):
    """The runs that ship with the project and no other, in a folder for all tests that only look: making its
    index takes longer than a drawing."""
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(home_of_recorded))


@pytest.fixture
def few(profiles):
    """Run folders of several kinds; name → Run."""
    return folders.few(profiles)


@pytest.fixture
def draw(profiles):
    """draw("kernels", op="add") → the page after its first run, which must not have raised."""

    def make(page: str, /, **query: str) -> AppTest:
        at = AppTest.from_file(str(APP), default_timeout=180)
        if page != "app":
            at.switch_page(f"pages/{page}.py")
        for key, value in query.items():
            at.query_params[key] = value
        return calm(at.run())

    return make


@pytest.fixture
def described_here(monkeypatch):
    """A config.json is read in this process instead of one of its own."""
    from fusescope.models.by_config import config_file, transformers_model

    def asked(file):
        try:
            return transformers_model.describe(file)
        except transformers_model.Refused as refused:
            return {"error": str(refused)}

    monkeypatch.setattr(config_file, "asked", asked)
