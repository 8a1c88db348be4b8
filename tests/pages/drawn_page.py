"""What tests ask of a page that was drawn."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


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
