"""Waiting until a page has been drawn whole."""

_DRAWN = """() => document.querySelector('.stMain h1') && !document.querySelector('[data-stale=true]')
    && document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"""


def settled(page) -> None:
    """The page is drawn whole, and nothing fades in."""
    page.wait_for_function(_DRAWN, polling=100)
    page.wait_for_timeout(400)


def choose(page, name: str, value) -> None:
    """Another value of a select box, and the page drawn with it: it keeps what was chosen in its address.
    Waiting for a settled page alone may end before the server has begun to draw."""
    settled(page)
    before = page.url
    box = page.get_by_role("combobox", name=name, exact=True).first
    box.click()
    page.get_by_role("option").first.wait_for()
    option = page.get_by_role("option", name=value, exact=isinstance(value, str))
    if isinstance(value, str) and not option.count():
        box.fill(value)  # of a long list only what is in sight is there
    option.first.click()
    page.wait_for_function("before => location.href !== before", arg=before, polling=100)
    settled(page)
