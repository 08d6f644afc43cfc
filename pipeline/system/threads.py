"""Threads for reuse.

TVM's pool of helper threads belongs to the thread that first runs a kernel on several cores.  It ends only with that
thread, its helpers spin for some 100 ms before they do, and they are all kept on the same cores: a program that starts
a thread for each use has more and more of them, each slower to end because of the others.  So a thread that has such
a pool rests when its work is done, until somebody has work for the same cores.  A resting thread takes no time of any
core.  There are never more threads, at work and resting together, than were once at work at the same time.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from time import monotonic
from typing import TypeVar

from pipeline.system import affinity, forks

RESTING = "resting"
"""Name of an idle thread."""

Result = TypeVar("Result")

_LOOK_S = 0.05
"""Seconds between two looks at the need for a result."""


class Lease:
    """Use of a thread for one piece of work.

    The work returns whether the thread may be used again afterwards. `kind` is that of resting threads to use; None is
    a thread of its own, which ends with the work.
    """

    def __init__(self, work: Callable[[], bool], name: str, kind: Hashable = None) -> None:
        self.name, self.kind = name, kind
        self._work: Callable[[], bool] | None = work
        self._thread: ReusableThread | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Begin the work."""
        self._thread = _threads.take(self.kind)
        self._thread.leases.put(self)

    def perform(self) -> bool:
        """Do the work, in the thread."""
        work, self._work = self._work, None
        return work is not None and work()

    def end(self) -> None:
        """Note the end of the work."""
        self._over.set()

    def begun_elsewhere(self) -> bool:
        """Check if another thread has begun the work."""
        return self._thread is not None and self._thread is not threading.current_thread()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the work; False after `timeout` seconds."""
        if self.kind is None and self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return self._over.wait(timeout)


def run_in_thread(work: Callable[[], Result], name: str, kind: Hashable = None) -> Result:
    """Run work in another, unpinned thread, and return its result.

    Errors are raised again here. A thread of a `kind`, the state that the work leaves in it (see
    `DeviceRuntime.thread_kind`), is used again.
    """
    lease, outcome = _lease_work(work, name, kind)
    lease.start()
    # For the thread, not only for its result: the next one who asks shall find it at rest.
    lease.join()
    return outcome.result()


def start_in_thread(work: Callable[[], Result], name: str) -> Future[Result]:
    """Run long work in a named thread, and return its future."""
    lease, outcome = _lease_work(work, name)
    lease.start()
    return outcome


def call_in_time(
    work: Callable[[], Result],
    name: str,
    *,
    limit_s: float,
    ends: Callable[[], bool],
    discard: Callable[[Result], object],
) -> Result:
    """Run work that may hang in another thread; return its result.

    Raises `TimeoutError` if the work was given up; it goes on in its thread. Its errors are raised again here; `ends`
    gives up at once. A result that comes too late goes to `discard`, in the other thread.
    """
    outcome, deadline = start_in_thread(work, name), monotonic() + limit_s
    while not outcome.done() and not ends() and monotonic() < deadline:
        wait([outcome], _LOOK_S)
    if outcome.done():
        return outcome.result()
    outcome.add_done_callback(lambda late: None if late.exception() else discard(late.result()))
    raise TimeoutError(f"{name} takes more than {limit_s:g} s")


def _lease_work(work: Callable[[], Result], name: str, kind: Hashable = None) -> tuple[Lease, Future[Result]]:
    outcome: Future[Result] = Future()
    # As if it had begun already: who waits for it cannot cancel it.
    outcome.set_running_or_notify_cancel()

    def perform() -> bool:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is asked for
            outcome.set_exception(error)
        return True

    return Lease(perform, name, kind), outcome


class ReusableThread(threading.Thread):
    """Thread for one piece of work after the other."""

    def __init__(self, kind: Hashable) -> None:
        # A daemon: it may rest, or hang in a device, when the interpreter ends.
        super().__init__(name=RESTING, daemon=True)
        self.kind, self.process = kind, os.getpid()
        self.leases: SimpleQueue[Lease | None] = SimpleQueue()

    def run(self) -> None:
        """Work and rest in turns until the thread is surplus."""
        while (lease := self.leases.get()) is not None:
            affinity.unpin()
            self.name, reusable = lease.name, False
            try:
                reusable = lease.perform()
            finally:
                self.name = RESTING
                # Before the end is told: whoever waits for it may use this thread at once.
                _threads.put_back(self, reusable=reusable)
                lease.end()
            del lease  # it would keep what it has worked with


class _Threads:
    """Threads of a kind, at work and resting."""

    def __init__(self) -> None:
        self.after_fork()
        forks.watch(self)

    def after_fork(self) -> None:
        """Forget all threads: a forked process has none of them."""
        # A new one: in a child, the parent's may be held for ever by a thread that is not there. It guards the three
        # counts below, which every thread changes when it begins and ends its work.
        self._lock = threading.Lock()
        self._resting: list[ReusableThread] = []
        self._working = self._peak = 0

    def take(self, kind: Hashable) -> ReusableThread:
        """Return a thread waiting for work."""
        if kind is not None:
            with self._lock:
                self._working += 1
                self._peak = max(self._peak, self._working)
                # The one that has rested shortest: its caches and helpers are the warmest, and the others grow old
                # and end.
                thread = next((candidate for candidate in reversed(self._resting) if candidate.kind == kind), None)
                if thread is not None:
                    self._resting.remove(thread)
                    return thread
                self._end_surplus()
        thread = ReusableThread(kind)
        try:
            thread.start()
        except BaseException:  # the system has no more threads
            self.put_back(thread, reusable=False)
            raise
        return thread

    def put_back(self, thread: ReusableThread, *, reusable: bool) -> None:
        """Let a thread rest, or end."""
        if thread.kind is None:
            thread.leases.put(None)
            return
        with self._lock:
            self._working = max(0, self._working - 1)
            # In a process that this thread has forked, its pool has lost its helpers.
            if reusable and thread.process == os.getpid():
                self._resting.append(thread)
                self._end_surplus()
            else:
                thread.leases.put(None)

    def _end_surplus(self) -> None:
        """End the threads at rest longest, above the number ever needed."""
        while self._resting and self._working + len(self._resting) > self._peak:
            self._resting.pop(0).leases.put(None)


_threads = _Threads()


def _outlast_native_code() -> None:
    """Let the process end during native code with its own status.

    A thread that comes back from there while the interpreter ends is ended by that, in the middle of functions of C++,
    which abort the process then.  It sleeps there instead, and what C++ tears down when the process ends stays.
    """
    workers = [thread for thread in threading.enumerate() if isinstance(thread, ReusableThread)]
    if all(thread.name == RESTING for thread in workers):
        return
    # On a system without GNU's libraries, nothing of this is known to help.
    with contextlib.suppress(AttributeError, OSError):
        c, cxx = ctypes.CDLL(None), ctypes.CDLL("libstdc++.so.6")
        sleep, leave = (ctypes.cast(function, ctypes.c_void_p) for function in (c["pause"], c["_exit"]))
        # std::set_terminate
        cxx["_ZSt13set_terminatePFvvE"](sleep)
        c.signal(int(signal.SIGABRT), sleep)
        c.fflush(None)
        # Called with the status, and before what C++ has registered.
        c.on_exit(leave, None)


# Before the others that are registered later: it is called behind them.
atexit.register(_outlast_native_code)
