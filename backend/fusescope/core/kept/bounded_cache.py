"""A cache of bounded size: the least recently used entry makes room for a new one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class BoundedCache(Generic[V]):
    """At most ``limit`` values by hashable key; safe to use from several threads."""

    def __init__(self, limit: int):
        if limit < 1:
            raise ValueError(f"a cache holds at least 1 entry, not {limit}")
        self.limit = limit
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, default: V | None = None) -> V | None:
        """The value of this key, which becomes the most recently used; ``default`` where there is none."""
        with self._lock:
            if key not in self._values:
                return default
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Hashable, value: V) -> V:
        """Stores ``value`` and returns it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self.limit:
                self._values.popitem(last=False)
        return value

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of this key, made by ``make()`` where there is none. The lock is not held meanwhile: two
        threads may both make the value, and the later one is kept."""
        missing = object()
        value = self.get(key, missing)
        return self.put(key, make()) if value is missing else value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)
