"""Service manager: notices to systemd, by the protocol of ``sd_notify(3)``."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

SOCKET_VARIABLE, WATCHDOG_VARIABLE = "NOTIFY_SOCKET", "WATCHDOG_USEC"


def notify(*states: str) -> bool:
    """Send states such as ``"READY=1"``; False if nobody listens."""
    path = os.environ.get(SOCKET_VARIABLE, "")
    if not path:
        return False
    import socket

    # A name that begins so is no file, but a name of the kernel's own.
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.sendto("\n".join(states).encode(), address)
        except OSError:  # it has gone, or never was: a service works without it
            return False
    return True


@contextlib.contextmanager
def ready_service() -> Iterator[None]:
    """Tell the service manager of start, life and end of a block.

    A process that hangs, with the interpreter's lock held, says nothing more, and is started anew.
    """
    if not notify("READY=1"):
        yield
        return
    ending = threading.Event()
    thread = threading.Thread(target=_show_life, args=(ending,), name="watchdog of the service", daemon=True)
    thread.start()
    try:
        yield
    finally:
        notify("STOPPING=1")
        ending.set()
        thread.join()


def _show_life(ending: threading.Event) -> None:
    microseconds = os.environ.get(WATCHDOG_VARIABLE, "")
    # Twice as often as it is expected, as the manual advises.
    interval_s = int(microseconds) / 2e6 if microseconds.isdecimal() and int(microseconds) else None
    while interval_s is not None and not ending.wait(interval_s):
        notify("WATCHDOG=1")
