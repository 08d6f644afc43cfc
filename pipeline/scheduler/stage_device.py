"""StageDevice: a worker's stage on its device, with located errors, and a hung device's replacement."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pipeline.core.plan.plan import StagePlan
from pipeline.errors import PipelineError, describe_error
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.heterogeneous import HeterogeneousRuntime
from pipeline.scheduler.worker_context import Assignment

logger = logging.getLogger(__name__)


class StageDevice:
    """The device of one worker, used in its thread only, but for `break_off`.

    The assignment has the stage for each size of frames that it is built for.
    """

    def __init__(self, assignment: Assignment, runtime: DeviceRuntime) -> None:
        self._assignment, self._runtime = assignment, runtime

    def __str__(self) -> str:
        return f"stage {self._assignment.stage.name!r} on device {self.name!r}"

    @property
    def name(self) -> str:
        """Name of the device, or of the current step's."""
        step = self._step
        return self._runtime.device.name if step is None else step.device

    @property
    def step(self) -> str:
        """Name of the running or failed step, empty without steps."""
        step = self._step
        return "" if step is None else step.name

    @property
    def _step(self) -> StagePlan | None:
        return self._runtime.step if isinstance(self._runtime, HeterogeneousRuntime) else None

    def open(self) -> list[Any]:
        """Open the device and load the stage of every build."""
        self._runtime.open(self._assignment.stage.cores_of(self._assignment.replica))
        try:
            replica = self._assignment.replica
            return [self._runtime.load(stage.at_replica(replica), code) for stage, code in self._assignment.loads]
        except BaseException:
            # Or the device would be kept by a worker that never runs.
            self.close()
            raise

    def start_error(self, error: BaseException) -> BaseException:
        """Return the waiter's error for one raised by `open`."""
        if isinstance(error, PipelineError):
            return error
        failure = PipelineError(f"{self} cannot start: {describe_error(error)}")
        failure.__cause__ = error
        return failure

    def break_off(self) -> None:
        """Interrupt a hanging call if possible; called from another thread."""
        try:
            self._runtime.break_off()
        except Exception:
            # The frame has failed already, and its worker is replaced whatever the device says.
            logger.exception("device %r of stage %r could not be interrupted", self.name, self._assignment.stage.name)

    def close(self) -> None:
        """Give the device back."""
        try:
            self._runtime.close()
        except Exception:
            # Nobody waits for this any more: all frames of the worker have ended.
            logger.exception("device %r of stage %r could not be closed", self.name, self._assignment.stage.name)


OPENINGS = 10
"""Factor on the first opening's time. A server has to be started again, and files to be sent."""


def opening_limit(stage_limit: float, opened_s: float, opening_s: float) -> float:
    """Return a device's opening limit in seconds, for a stage's limit."""
    return max(stage_limit, OPENINGS * opened_s, opening_s)


class Reopening:
    """Time limit of an opening, ended once by device or clock.

    After `limit` seconds `on_late` is called, in a thread of its own.
    """

    def __init__(self, limit: float, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        # Taken once and never released: whoever gets it, the worker or the clock, owns what comes next.
        self._decision = threading.Lock()
        self._timer = threading.Timer(limit, self._expire)
        # The interpreter must not wait for a limit that may be minutes long.
        self._timer.daemon = True

    def begin(self) -> None:
        """Start the clock."""
        self._timer.start()

    def end(self) -> bool:
        """Stop the clock; return True if in time."""
        in_time = self._decision.acquire(blocking=False)
        # Also when it was too late: cancelling a timer that runs does nothing.
        self._timer.cancel()
        return in_time

    def _expire(self) -> None:
        if self._decision.acquire(blocking=False):
            self._on_late()
