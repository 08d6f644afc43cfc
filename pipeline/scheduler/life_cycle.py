"""LifeCycle: calls to pause, empty and close a pipeline, and warnings for the unclosed."""

from __future__ import annotations

import _thread
import atexit
import warnings
import weakref
from typing import TYPE_CHECKING, Protocol

from pipeline.core import arguments
from pipeline.core.plan.plan import Plan
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.original_calls import OriginalCalls
from pipeline.scheduler.pending_builds import PendingBuilds
from pipeline.scheduler.switch_interval import SwitchInterval

if TYPE_CHECKING:
    from typing_extensions import Self

GRACE_S = 0.5
"""Seconds of an abrupt end for devices in the middle of something."""


class LifeCycle:
    """End of a pipeline's life; `Pipeline` sets its parts."""

    _engine: Engine
    _pending_builds: PendingBuilds
    _original_calls: OriginalCalls
    _switch_interval: SwitchInterval

    @property
    def plan(self) -> Plan:
        """Plan of new frames; `swap` changes it."""
        return self._engine.deployment.plan

    @property
    def closed(self) -> bool:
        """True if no more frames are accepted."""
        return self._engine.closing

    @property
    def error(self) -> BaseException | None:
        """Error behind an early end, None without."""
        return self._engine.error

    def drain(self, *, timeout: float | None = None) -> None:
        """Wait up to `timeout` seconds for the frames submitted so far.

        Raises
        ------
        TimeoutError
            If they had not ended in time, or the caller is a callback, which must not wait for its own pipeline.
        """
        self._engine.drain(arguments.time_limit("timeout", timeout))

    def flush(self) -> int:
        """Drop frames before their first stage as ``"flushed"``; return their count."""
        return self._engine.intake.flush()

    def pause(self) -> None:
        """Start no more frames; started ones finish, others wait or drop."""
        self._engine.pause()

    def resume(self) -> None:
        """Start frames again."""
        self._engine.resume()

    def stop(self) -> None:
        """Finish the frames and close the pipeline."""
        self.close()

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Accept no more frames and end the workers; repeatable from anywhere.

        Called from a callback it only begins the end, since a worker cannot wait for itself.  Once frames have been
        given up, here or because of an error, devices that are still at them are not waited for.

        Parameters
        ----------
        drain : bool
            Finish the frames that are in, also those that wait.  With False those that no stage has taken up are
            cancelled, and the others fail with `PipelineClosed`.
        timeout : float, optional
            Seconds to wait for frames to finish; those left are given up.
        """
        timeout = arguments.time_limit("timeout", timeout)
        unwatch(self)
        engine = self._engine
        # First of all: nobody comes in while the rest is being ended.
        engine.close()
        self._original_calls.end()
        self._switch_interval.end()
        # The end goes on in the other threads; whoever waits for it calls this again from outside.
        if engine.must_not_wait():
            if not drain:
                engine.abandon(engine.unfinished_error())
            return
        is_complete = False
        try:
            is_complete = drain and engine.join(timeout)
        finally:
            # Also when Ctrl-C ends the wait.
            if not is_complete:
                engine.abandon(engine.unfinished_error())
            self._warn_of_busy_stages()

    def after_fork(self) -> None:
        """Close in a forked process; called there."""
        unwatch(self)
        self._engine.after_fork()
        self._pending_builds.after_fork()
        self._original_calls.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.close(drain=error_type is None)

    def _warn_of_busy_stages(self) -> None:
        if busy := self._engine.deployments.busy(GRACE_S):
            names = ", ".join(repr(name) for name in busy)
            warnings.warn(
                f"stages that are still busy in their device: {names}; their threads end when the device returns",
                ResourceWarning,
                stacklevel=3,
            )


class Closable(Protocol):
    """A pipeline, as far as it is watched."""

    @property
    def plan(self) -> Plan:
        """Running plan."""

    def close(self, *, drain: bool = True) -> None:
        """End it."""


# Weak, so that being watched keeps no pipeline alive.
_finalizers: weakref.WeakKeyDictionary[Closable, weakref.finalize[[Engine], Closable]] = weakref.WeakKeyDictionary()


def watch(pipeline: Closable, engine: Engine) -> None:
    """End `engine` with a warning if `pipeline` is collected or outlives the program."""
    finalizer = weakref.finalize(pipeline, _close_collected, engine)
    # `_at_exit` does that, which can wait: a finalizer must not.
    finalizer.atexit = False
    _finalizers[pipeline] = finalizer


def unwatch(pipeline: Closable) -> None:
    """Watch no longer: the pipeline is being closed."""
    if (finalizer := _finalizers.pop(pipeline, None)) is not None:
        finalizer.detach()


def _close_collected(engine: Engine) -> None:
    # Its frames may still be waited for; their threads end after them.  This may be any place in any thread, also one
    # where the engine's own tables are half changed: so another thread closes it, and nothing here waits for a lock.
    _thread.start_new_thread(engine.close, ())
    _warn(engine.deployment.plan)


@atexit.register
def _at_exit() -> None:
    # Threads must not be in native code when the interpreter goes down under them.
    for pipeline in list(_finalizers):
        # What is in is given up: nobody is left to read results.
        pipeline.close(drain=False)
        _warn(pipeline.plan)


def _warn(plan: Plan) -> None:
    message = f"the pipeline {plan.model!r} was never closed; use it in a 'with' block, or call close()"
    warnings.warn(message, ResourceWarning, stacklevel=2)
