"""Interrupts: changes of the books, indivisible by signals.

Python runs signal handlers in the main thread, between any two of its steps, and Ctrl-C raises an exception there.  A
worker can never be hit, but a caller can: between taking a frame out of the books and ending its future, say.  So the
main thread makes such changes with its handlers put off: they run, and raise, once the change is complete.

`submit` does without, as it happens for each frame: it mends what an interrupt has torn, see `Intake.submit`.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any])

# The functions of the module `signal` turn numbers into enumerations, which takes ten times as long as the rest.
_signal = import_module("_signal")

SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
    if hasattr(signal, name)
)
"""Signals with handlers known to raise exceptions in the main thread."""

# Both belong to the main thread alone.
_put_off: dict[int, Callable[[int, FrameType | None], Any]] = {}
_pending: list[int] = []


def uninterrupted(call: Call) -> Call:
    """Defer signal handlers until the function returned, in the main thread."""

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        # Inside of another such call the handlers are away already; the outermost one brings them back.
        # Not by `in_main_thread`: one call less, where workers pass by with each frame.
        if _put_off or threading.get_ident() != threading.main_thread().ident:
            return call(*args, **kwargs)
        try:
            _put_off_handlers()
            return call(*args, **kwargs)
        finally:
            try:
                _put_back_handlers()
            finally:
                _raise_pending()

    return run  # type: ignore[return-value]


def contain(call: Callable[..., object], *args: Any) -> BaseException | None:
    """Call user code during a change and return its exception.

    User code can be interrupted; a KeyboardInterrupt of the main thread is raised, once the change is complete.
    """
    # The user's code gets its own handlers for the time being: a callback that hangs must remain open to Ctrl-C.
    is_put_off = bool(_put_off) and in_main_thread()
    try:
        if not is_put_off:
            call(*args)
        else:
            try:
                _put_back_handlers()
                call(*args)
            finally:
                _put_off_handlers()
    except KeyboardInterrupt as error:
        if is_put_off:
            # Not raised here, where it would tear the change: as if the signal had come during the change itself.
            _pending.append(signal.SIGINT)
        elif in_main_thread():
            raise
        else:
            # Python interrupts the main thread only: here it is an exception that the user's code has raised itself.
            return error
    except BaseException as error:  # noqa: BLE001 - whatever it is, the change goes on
        return error
    return None


def in_main_thread() -> bool:
    """Test for the thread interrupted by signals."""
    return threading.get_ident() == threading.main_thread().ident


def _after_fork() -> None:
    """Restore handlers deferred in the parent's main thread."""
    _put_back_handlers()
    _pending.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _note(number: int, _: FrameType | None) -> None:
    _pending.append(number)


def _raise_pending() -> None:
    last_error: BaseException | None = None
    while _pending:
        try:
            # The handler that is installed by now decides what happens, as it would have at the time.
            signal.raise_signal(_pending.pop())
        except BaseException as error:  # noqa: BLE001, PERF203 - what remained would interrupt a later call
            last_error = error
    if last_error is not None:
        raise last_error


def _put_off_handlers() -> None:
    for number in SIGNALS:
        handler = _signal.getsignal(number)
        # Defaults and ignored signals are numbers: they raise nothing in Python.
        if callable(handler) and handler is not _note:
            # Noted first: an interrupt in between finds what it has to put back.
            _put_off[number] = handler
            _signal.signal(number, _note)


def _put_back_handlers() -> None:
    last_error: BaseException | None = None
    # Again after an error: all handlers have to be back, whatever one of them raises.
    while _put_off:
        try:
            for number, handler in list(_put_off.items()):
                _signal.signal(number, handler)
                _put_off.pop(number, None)
        except BaseException as error:  # noqa: BLE001, PERF203 - by a handler that is back already
            last_error = error
    if last_error is not None:
        raise last_error
