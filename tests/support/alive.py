"""Objects that are alive."""

from __future__ import annotations

import gc
import threading
from typing import Any


def collect() -> None:
    """Collect garbage, also if another thread has just begun to.

    While a thread collects, such as that by which workers of a test run talk, `gc.collect` of another one does nothing.
    """
    own, done = threading.get_ident(), threading.Event()

    def note(phase: str, _: dict[str, Any]) -> None:
        if phase == "stop" and threading.get_ident() == own:
            done.set()

    gc.callbacks.append(note)
    try:
        gc.collect()
        while not done.wait(1e-3):
            gc.collect()
    finally:
        gc.callbacks.remove(note)


def count_alive(name: str) -> int:
    """Return how many objects of a class with this name are alive."""
    collect()
    return sum(type(value).__name__ == name for value in gc.get_objects())
