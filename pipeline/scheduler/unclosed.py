"""Unclosed pipelines: their threads end with a warning."""

from __future__ import annotations

import _thread
import atexit
import warnings
import weakref
from typing import Protocol

from pipeline.core.plan.plan import Plan
from pipeline.scheduler.engine import Engine


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
