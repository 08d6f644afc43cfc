"""Counting what is alive while another thread collects garbage."""

from __future__ import annotations

import gc
import threading
from typing import Any

from tests.support.alive import count_alive


class Forgotten:
    """Part of a circle that only a collection ends."""

    def __init__(self, work: Any = None) -> None:
        self.circle, self.work = self, work

    def __del__(self) -> None:
        if self.work is not None:
            self.work()


def test_a_collection_of_another_thread_is_waited_for() -> None:
    begun, counts = threading.Event(), threading.Event()

    def finalize() -> None:
        begun.set()
        counts.wait(0.2)

    def collect() -> None:
        Forgotten(finalize)
        gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    assert begun.wait(30)
    Forgotten()
    count = count_alive("Forgotten")
    counts.set()
    thread.join(30)
    assert count == 0
