"""Forks: resources that a child process must not use.

Locks that another thread held will never be released there, threads that were to end something are gone, and
connections are still the parent's.  So whatever is open is told, in the child, that it is not the child's.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Protocol


class ForkObserver(Protocol):
    """Resource that observes forks."""

    def after_fork(self) -> None:
        """Let go of the parent's resources, in the child."""


# Weak, so that watching keeps no closed pipeline in memory.
_observers: weakref.WeakSet[ForkObserver] = weakref.WeakSet()


def watch(observer: ForkObserver) -> None:
    """Tell `observer` of a fork as long as it exists."""
    _observers.add(observer)


def keep(resource: object) -> None:
    """Never end `resource` in this process.

    Its end would take locks or use connections of the parent.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _after_fork() -> None:
    # A copy: an observer may let go of another one, which then leaves the set.
    for observer in list(_observers):
        observer.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
