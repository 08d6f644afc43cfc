"""Native output: text of libraries on file descriptor 2, kept from users.

TVM and LLVM print warnings there that no logger and no filter of Python's sees.  The descriptor belongs to the process:
whoever points it elsewhere for a moment takes the lines of all other threads, and of processes started meanwhile.  But
on Linux a thread may have a table of descriptors of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, BinaryIO, TypeVar

Result = TypeVar("Result")

_CLOSE_RANGE = 436
"""The system call's number, the same on all architectures; the C library has a name for it since 2021 only."""

_CLOSE_RANGE_UNSHARE = 1 << 1
_CLONE_FILES = 0x400

# Marks threads that are quiet already: in these, a nested call needs no thread of its own.
_thread_state = threading.local()

_interrupts: list[BaseException] = []


def quietly(call: Callable[[], Result]) -> Result:
    """Call a function, and drop its prints to descriptor 2.

    On an error these prints appear after all.

    The function runs in a thread of its own, which the caller waits for, also when Ctrl-C comes meanwhile; so it must
    not take a lock that the caller holds.  Nor may it leave a file open, or close the caller's: in the other thread
    that number is of another file, or of none.  Where the system gives a thread no descriptors of its own, nothing is
    held back.
    """
    if getattr(_thread_state, "quiet", False):
        return call()
    outcome: Future[Result] = Future()
    texts: list[bytes] = []
    thread = threading.Thread(target=_run, args=(call, outcome, texts), name="quiet", daemon=True)
    interrupt = None
    try:
        thread.start()
        outcome.exception()
    except BaseException as error:  # Ctrl-C, or what else a signal's handler raises
        # There is no such thread, or it has not begun, and will not.
        if outcome.cancel():
            raise
        interrupt = error
        _wait_for_end(outcome, error)
    # What was held back explains the error, and is printed before anything about it.
    if outcome.exception() is not None:
        _print(b"".join(texts))
    if interrupt is not None:
        raise interrupt
    return outcome.result()


def holds_interrupt() -> bool:
    """Check for an interrupt held back during `quietly`."""
    return bool(_interrupts)


def _wait_for_end(outcome: Future[Any], interrupt: BaseException) -> None:
    """Wait for the end of a call, through further interrupts."""
    # Of the main thread alone, since no other one is interrupted.
    _interrupts.append(interrupt)
    while not outcome.done():
        with contextlib.suppress(BaseException):
            outcome.exception()
    _interrupts.clear()


def _run(call: Callable[[], Any], outcome: Future[Any], texts: list[bytes]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    _thread_state.quiet = True
    file = _hold_back()
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001 - goes to who asked
        if file is not None:
            file.seek(0)
            texts.append(file.read())
        outcome.set_exception(error)
    finally:
        if file is not None:
            file.close()


def _hold_back() -> BinaryIO | None:
    """Let the calling thread print into memory; None if the system cannot."""
    if not _own_descriptors():
        return None
    try:
        file = os.fdopen(os.memfd_create("native output"), "rb")
    except OSError:  # some sandboxes have none
        return None
    os.dup2(file.fileno(), 2)
    return file


def _own_descriptors() -> bool:
    """Give the calling thread its own file descriptors, if possible."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    # Containers often forbid `unshare`, and older kernels have no `close_range`; of that, nothing but 2 is closed.
    return bool(library.syscall(_CLOSE_RANGE, 2, 2, _CLOSE_RANGE_UNSHARE) == 0 or library.unshare(_CLONE_FILES) == 0)


def _print(text: bytes) -> None:
    if sys.stderr is None:  # it was closed, and 2 may be any other file's number
        return
    try:
        while text:
            text = text[os.write(2, text) :]
    except OSError:  # it is closed: nobody wants to see it
        return
