"""What a part of a page that is drawn alone must notice: settings that others read."""

from __future__ import annotations

import numpy as np
import pytest
import streamlit as st

from pages._ui.app import redraw, url


@pytest.fixture
def session(monkeypatch):
    held: dict = {}
    monkeypatch.setattr(st, "session_state", held)
    return held


@pytest.mark.parametrize(
    "before, after",
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": None}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": np.zeros(2)}, {"a": np.zeros(2)}),  # compared with doubt: drawing once too often is no fault
    ],
)
def test_a_changed_setting_is_noticed(session, before, after):
    session |= before
    settled = redraw.settings()
    session |= after
    assert redraw.changed(settled, ("view",))
    assert not redraw.changed(settled, ("a",)), "it is the part's own"


def test_a_list_changed_in_place_is_noticed(session):
    session["a"] = [1]
    settled = redraw.settings()
    session["a"].append(2)
    assert redraw.changed(settled, ()) == [[1, 2]]


def test_what_is_the_same_gone_or_of_the_url_is_no_change(session):
    table = np.zeros(2)
    session |= {"same": (1, "x"), "table": table, "gone": 1, "url/kernels": [1]}
    settled = redraw.settings()
    del session["gone"]
    session["url/kernels"] = [1, 2]
    assert redraw.changed(settled, ()) == []


def test_what_a_part_kept_is_replaced_when_it_is_drawn_again(session, monkeypatch):
    monkeypatch.setattr(st, "query_params", {"view": "Tables"})
    state = url.State("profiler")
    state.keep("run", "r")
    with state.part("view"):
        state.keep("view", "Tables")
        state.keep("order", "name")
    state.keep("device", "cpu")
    monkeypatch.setattr(st, "query_params", {"run": "r", "order": "name"})
    state.renew()
    assert state.query == {"run": "r", "order": "name"} and not state.opened and not state.followed
    with pytest.raises(ValueError), state.part("view"):
        state.keep("view", "Roofline")
        raise ValueError
    assert state.out == {"run": "r", "view": "Roofline", "device": "cpu"}
    with state.part("view"):
        pass
    assert state.out == {"run": "r", "device": "cpu"}
