"""Local server: common base of metrics and live view, on loopback."""

from __future__ import annotations

import errno
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from pipeline.errors import InputError
from pipeline.system.closable import Closable

ADDRESS = "127.0.0.1"
"""Whoever is on another machine has to be let in by the user's own means, such as a tunnel."""

HOSTS = (ADDRESS, "localhost")
"""Names of a server in a browser. Another one points here to read what is not its own."""

Listener = TypeVar("Listener")


class LoopbackServer(Closable, ABC):
    """Serves in a thread; a context manager that warns if forgotten."""

    # Of the class, so that one whose `__init__` has failed is known not to serve when it is collected.
    _thread: threading.Thread | None = None

    def __init__(self) -> None:
        # Of `_thread`, and of what subclasses change: they may be used and closed from different threads.
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def url(self) -> str:
        """Served address."""

    @property
    def serving(self) -> bool:
        """True from the start until it is closed."""
        return self._thread is not None

    def close(self) -> None:
        """Stop serving; may be called again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            # In this order: the thread ends only after the server has stopped.
            self._stop()
            thread.join()

    def _start(self, serve: Callable[[], object], name: str) -> None:
        """Start serving; `serve` must not reference this object, for its collection."""
        thread = threading.Thread(target=serve, name=name, daemon=True)
        thread.start()
        self._thread = thread

    @abstractmethod
    def _stop(self) -> None:
        """Let `serve` return; from another thread."""

    def __del__(self) -> None:
        # Without `close` the thread would serve until the process ends, and keep its port.
        if self.serving:
            warnings.warn(f"{self.url} was not closed; use it in a with block", ResourceWarning, stacklevel=2)
            self.close()


def is_local_name(host: str) -> bool:
    """Test for a local ``Host`` at any port, since tunnels may use any."""
    # DNS rebinding: a foreign page can let its own name point to this address, and read what is served.
    return host in HOSTS or host.rpartition(":")[0] in HOSTS


def listen(service: str, port: int, start: Callable[[], Listener]) -> Listener:
    """Listen on a loopback port by `start`, returning its result.

    Raises `InputError` if the port is taken, not allowed, or none.
    """
    # The socket would raise an OverflowError, which names no remedy.
    if not 0 <= port <= 65535:
        raise InputError(f"cannot serve {service} on port {port}; give one from 1 to 65535, or 0 for one that is free")
    try:
        return start()
    except OSError as error:
        reason = "another program uses it" if error.errno == errno.EADDRINUSE else error.strerror
        raise InputError(
            f"cannot serve {service} on port {port}: {reason}; give another, or 0 for one that is free"
        ) from None
