"""The whole state of a page in its URL: read once when a page opens, written after every change, back button
included.

A page seeds its widgets through ``State.seed`` before drawing them and names what belongs into the URL with
``State.keep``; ``commit`` (called by the frame) writes it. A value that does not parse
becomes one sentence, and the default is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from fusescope.core.schema import Parameter
from pages._ui.widgets import site

_ECHO_S = 10.0
"""A quick second click can still carry the query string from before the first: for this long such a query is
not a navigation."""


class _Query(dict[str, str]):
    """The parameters of the URL; ``read`` are those that the page asked for."""

    def __init__(self, given: dict[str, str]):
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: str | None = None) -> str | None:
        self.read.add(name)
        return super().get(name, default)


class State:
    """URL state of one page during one script run."""

    def __init__(self, page: str):
        self.page = page
        self.query = _Query({k: st.query_params[k] for k in st.query_params})
        self.out: dict[str, str] = {}
        self.problems: list[str] = []
        self.refused: list[str] = []
        """What boxes show and nothing may use: one sentence each (``forms.fields.refuse``)."""
        self.unconfirmed: list[str] = []
        """Files that the URL named and that are not confirmed yet (``forms.linked``)."""
        self.scopes = {""}
        """What the URL's parameters belong to, where a page has several sets of them (one per operator)."""
        history = st.session_state.get(f"url/{page}", [])
        self.followed = not history or history[-1][1] != self.query
        """True where the query is not the one that the last run left: a link, the back button. A link to the
        page that is on show changes it here and not in the browser."""
        recent = [q for when, q in history if time.time() - when < _ECHO_S] + [q for _, q in history[-1:]]
        context = get_script_run_ctx(suppress_warning=True)
        went_back = context is not None and context.is_history_navigation
        self.opened = self.query not in recent or (went_back and self.followed)
        """True where the URL came from outside: first visit, a link, the back button."""
        if self.opened:
            # At once: a click that cuts this run short must not be undone by reading the URL again.
            st.session_state[f"url/{page}"] = [*history, (time.time(), dict(self.query))]

    def seed(self, name: str, default: Any, read: Callable[[str], Any] = str, scope: str = "") -> str:
        """The session-state key of a widget, filled from the URL when the page opens and with ``default``
        where it says nothing.

        ``read`` turns the URL's text into the widget's value and raises ValueError with a sentence where it
        cannot. Widgets of a scope that is not in ``scopes`` have values of their own and do not read the URL.
        """
        key = self.key(name, scope)
        if self.opened or key not in st.session_state:
            value = default
            if name in self.query and scope in self.scopes:
                st.session_state[came_from_url(key)] = self.query[name]
                try:
                    value = read(self.query[name])
                except (ValueError, TypeError) as error:
                    self.ignored(name, error)
            st.session_state[key] = value
        return key

    def key(self, name: str, scope: str = "") -> str:
        """The session-state key of a widget."""
        return f"{self.page}/{scope}/{name}" if scope else f"{self.page}/{name}"

    def ignored(self, name: str, why: object) -> None:
        """Say that a parameter of the URL was ignored; ``why`` is its rule. After a click the URL is our own,
        and what no longer fits was not asked for."""
        if self.opened:
            self.problems.append(f"Ignored {name}={self.query[name][:80]} from the URL: {why}.")

    def keep(self, name: str, value: Any, default: Any = None) -> None:
        """Write ``name=value`` into the URL unless it is the default, None or empty."""
        if value != default and value not in (None, "", (), []):
            self.out[name] = value if isinstance(value, str) else str(value)

    def keep_rest(self) -> None:
        """Keep what the URL says of settings that are not drawn, because they wait for another one or a
        refusal ended the drawing: the next drawing takes from it what the session has forgotten."""
        for name, value in self.query.items():
            self.out.setdefault(name, value)

    def unread(self) -> None:
        """Say which parameters of an address from outside nothing on the page asked for."""
        names = [name for name in self.query if name not in self.query.read and name not in self.out]
        for name in names:
            self.ignored(name, "the page shows no such setting")

    def commit(self) -> None:
        """Make the browser's URL say what was kept."""
        key = f"url/{self.page}"
        now = time.time()
        seen = [*st.session_state.get(key, []), (now, dict(self.query)), (now, dict(self.out))]
        # Noted before it is sent: a click that cuts the run short here may already carry it.
        st.session_state[key] = [(when, q) for when, q in seen[:-1] if now - when < _ECHO_S] + seen[-1:]
        if self.followed or dict(self.query) != self.out:
            st.query_params.from_dict(self.out)


def came_from_url(key: str) -> str:
    """Where the session keeps the text that a widget last took from the URL."""
    return f"{key}/came_from_url"


def last(page: str) -> dict[str, str]:
    """The query a page was left with in this session: what a link back to it carries."""
    history = st.session_state.get(f"url/{page}", [])
    return dict(history[-1][1]) if history else {}


def link(page: str, **query: Any) -> str:
    """A path with query for a page of ours: link("runs", run="2026…") gives "/runs?run=2026…"."""
    path = site.root() + ("/" if page == "app" else f"/{page}")
    return path + (f"?{urlencode(query)}" if query else "")


def remember_list(state: State) -> None:
    """Keep the query of a page that shows its list, once all of it was kept in ``state``."""
    st.session_state[f"url/{state.page}/list"] = dict(state.out)


def of_list(page: str) -> dict[str, str]:
    """The query with which a page's list was left: filters and order. Empty where it has none."""
    return dict(st.session_state.get(f"url/{page}/list", {}))


def here() -> str:
    """The full address of the page as it is, for another browser."""
    base = (st.context.url or "").partition("?")[0]
    said = {name: st.query_params[name] for name in st.query_params}
    return base + (f"?{urlencode(said)}" if said else "")


def one_of(allowed: Iterable) -> Callable[[str], Any]:
    """A reader that takes only these."""
    return reader(Parameter("", "choice", choices=tuple(allowed)))


def whole(low: int | None = None, high: int | None = None) -> Callable[[str], int]:
    """A reader of integers within bounds."""
    return reader(Parameter("", "int", low=low, high=high))


def reader(parameter: Parameter) -> Callable[[str], Any]:
    """A reader whose ValueError is the parameter's rule."""

    def read(text: str) -> Any:
        try:
            return parameter.read(text)
        except ValueError:
            raise ValueError(f"must be {parameter.rule}") from None

    return read
