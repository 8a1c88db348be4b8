"""Every page drawn through the app's own entrance, in this process, without a browser."""

from __future__ import annotations

from pathlib import Path

import folders
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

APP = Path(__file__).resolve().parents[2] / "app.py"


@pytest.fixture(autouse=True)
def _fresh_caches():
    st.cache_data.clear()


@pytest.fixture
def few(profiles):
    """Run folders of several kinds; name → Run."""
    return folders.few(profiles)


@pytest.fixture
def draw(profiles):
    """draw("kernels", op="add") → the page after its first run, which must not have raised."""

    def make(page: str, /, **query: str) -> AppTest:
        at = AppTest.from_file(str(APP), default_timeout=60)
        if page != "app":
            at.switch_page(f"pages/{page}.py")
        for key, value in query.items():
            at.query_params[key] = value
        return calm(at.run())

    return make


def calm(at: AppTest) -> AppTest:
    """The page, checked to show no stack trace."""
    assert not at.exception, [e.message for e in at.exception]
    return at


def said(elements) -> str:
    """All texts of some elements as a person reads them."""
    return "\n".join(str(e.value).replace("\\", "").replace("**", "") for e in elements)


def query(at: AppTest) -> dict[str, str]:
    """The URL's query as the page left it."""
    return {k: v[0] if isinstance(v, list) else v for k, v in at.query_params.items()}
