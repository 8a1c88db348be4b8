"""core.bounded_cache: what stays, what goes, and use from several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fusescope.core.kept.bounded_cache import BoundedCache


def test_the_least_recently_used_entry_goes_first():
    cache = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1  # now "b" is the least recently used
    cache.put("c", 3)
    assert "b" not in cache and cache.get("a") == 1 and cache.get("c") == 3 and len(cache) == 2


def test_storing_a_key_again_replaces_its_value_and_renews_it():
    cache = BoundedCache(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        assert cache.put(key, value) == value
    assert cache.get("a") == 3 and cache.get("b") is None and cache.get("b", -1) == -1


def test_values_are_made_once_even_none():
    cache, made = BoundedCache(4), []
    for _ in range(3):
        assert cache.get_or_make("a", lambda: made.append(1)) is None
    assert made == [1]
    cache.clear()
    assert len(cache) == 0 and "a" not in cache


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        BoundedCache(0)


def test_threads_do_not_grow_it_beyond_its_limit():
    cache = BoundedCache(8)
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda n: cache.get_or_make(n % 32, lambda: n % 32), range(4000)))
    assert values == [n % 32 for n in range(4000)] and len(cache) <= 8
