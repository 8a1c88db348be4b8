"""Waiting until a page has been drawn whole."""

_DRAWN = """() => document.querySelector('.stMain h1') && !document.querySelector('[data-stale=true]')
    && document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"""


def settled(page) -> None:
    """The page is drawn whole, and nothing fades in."""
    page.wait_for_function(_DRAWN, polling=100)
    page.wait_for_timeout(400)
