"""Work in a thread of its own: pinning to a core must not follow the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def apart(work: Callable[[], Result], name: str) -> Result:
    """Return what `work` returns, or raise what it raises, after running it in a thread called `name`."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join()
    return done.result()
