"""Termination: signals end a command cleanly, or else soon."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn, TypeAlias

from pipeline.system import forks, native_output
from pipeline.system.threads import RESTING

Handler: TypeAlias = "Callable[[int, FrameType | None], object]"

# 128 + SIGINT, as shells report a process that Ctrl-C has ended.
INTERRUPTED = 130

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals of an end: Ctrl-C, that of a service manager, and that of a terminal that goes."""

LIMIT_S = 1.5
"""Seconds that a command has to end in, where a signal does not interrupt it or comes again."""

SAME_S = 0.5
"""Seconds within which signals are one request: from the shell and the kernel, or two of a service manager."""

SHOW_CURSOR = b"\x1b[?25h"
"""Sequence that shows a terminal's cursor again, hidden by a progress bar."""

# Signals whose handlers have run.
_handled: list[int] = []

# Held for good by the first timer that ends the process: two that are due at once would both say so.
_ending = threading.Lock()


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Direct SIGTERM and SIGHUP to Ctrl-C's clean end, or kill the process.

    The first signal interrupts; further ones must not spoil the clean end.  Ctrl-C interrupts as often as it is
    pressed.
    """
    # Only the main thread may set handlers; a program that calls `main` elsewhere has its own.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        if number == signal.SIGINT or not ending:
            ending = True
            signal.default_int_handler(number, frame)

    with handlers(interrupt), _Watch():
        yield


@contextlib.contextmanager
def handlers(handler: Handler) -> Iterator[None]:
    """Set a handler of `SIGNALS` during the block."""

    def handle(number: int, frame: FrameType | None) -> None:
        _handled.append(number)
        handler(number, frame)

    previous = {number: signal.getsignal(number) for number in SIGNALS}
    # What whoever started this process ignores, as nohup does, stays ignored.
    numbers = [number for number in SIGNALS if previous[number] is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, previous[number])


class _Watch:
    """Thread receiving signals while the main thread is in native code."""

    def __enter__(self) -> None:
        self._timers: list[threading.Timer] = []
        _handled.clear()
        self._output, self._input = os.pipe()
        # As Python asks for: what it calls in a signal must not wait.
        os.set_blocking(self._input, False)
        self._previous = signal.set_wakeup_fd(self._input, warn_on_full_buffer=False)
        forks.watch(self)
        self._thread = threading.Thread(target=self._run, name=RESTING, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._previous)
        os.close(self._input)
        self._thread.join()
        os.close(self._output)
        for timer in self._timers:
            timer.cancel()

    def after_fork(self) -> None:
        """Let a child's signals be its own."""
        signal.set_wakeup_fd(-1)

    def _run(self) -> None:
        first = math.inf
        while number := os.read(self._output, 1):
            if number[0] not in SIGNALS:
                continue
            now = time.monotonic()
            if now - first > (0 if number[0] == signal.SIGINT else SAME_S):
                self._start_timer(_end)
            elif number[0] != signal.SIGINT:
                self._start_timer(_end_unless_interrupted)
            first = min(first, now)

    def _start_timer(self, action: Callable[[], None]) -> None:
        timer = threading.Timer(LIMIT_S, action)
        timer.name, timer.daemon = RESTING, True
        timer.start()
        self._timers.append(timer)


def _end_unless_interrupted() -> None:
    if not _handled or native_output.holds_interrupt():
        _end()


def _end() -> NoReturn:
    _ending.acquire()
    # Past Python's streams, which the main thread may have locked.
    with contextlib.suppress(OSError):
        os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"soc-pipeline: interrupted\n")
    os._exit(INTERRUPTED)
