"""What is made of a plan on first use: kept next to the plan, which never changes, and dropped with it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PlanCache(Generic[T]):
    """One value per plan, made by ``make(plan)``, which must not keep the plan itself; safe to use from
    several threads."""

    def __init__(self, make: Callable[[Any], T]):
        self._make = make
        self._values: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()

    def of(self, plan) -> T:
        with self._lock:
            if plan not in self._values:
                self._values[plan] = self._make(plan)
            return self._values[plan]

    def known(self, plan) -> T | None:
        """The value where it is made already."""
        return self._values.get(plan)

    def made(self, plan) -> bool:
        """Whether the value exists already."""
        return plan in self._values
