"""Worker group: a deployment's workers, opened, replaced and joined together."""

from __future__ import annotations

import logging
import threading
from time import monotonic

from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.stage_device import opening_limit
from pipeline.scheduler.worker import Worker
from pipeline.scheduler.worker_context import Assignment, WorkerContext
from pipeline.system.forks import keep

logger = logging.getLogger(__name__)


class WorkerGroup:
    """The workers of a deployment: those at work, and those given up, whose device did not come back in time."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        # The watchdog replaces and loses workers while others look at them.
        self._lock = threading.Lock()
        self.workers: list[Worker] = []
        self.given_up: list[Worker] = []

    def add(self, assignment: Assignment, runtime: DeviceRuntime) -> None:
        """Add a worker for `open` to start."""
        self.workers.append(Worker(assignment, runtime, self))

    def open(self) -> None:
        """Start the workers and wait for their devices.

        Raises `PipelineError` if a device cannot be opened or a stage not loaded; threads may be left then.
        """
        # One after the other: many devices are loaded by code that only one thread may run at a time.
        for worker in self.workers:
            worker.start()
            worker.wait_opened()

    def replace(self, worker: Worker, frame: Frame) -> None:
        """Replace a hung worker, with a new runtime; it passes the frame on."""
        assignment = worker.assignment
        # A new one, since the old one is still in use by a thread in native code.
        runtime = assignment.make_runtime()
        # It passes the frame on before it opens the device, so that those behind do not wait for that.
        successor = Worker(assignment, runtime, self, frame)
        assignment.counters.restarts += 1
        with self._lock:
            self.workers[self.workers.index(worker)] = successor
            # Those that have come back at last are forgotten here, or a stage that hangs often would collect them.
            self.given_up = [hung for hung in self.given_up if not hung.join(0)] + [worker]
        successor.start(opening_limit(assignment.limit, worker.opened_s, runtime.opening_s))

    def lose(self, worker: Worker, error: BaseException) -> None:
        """Continue without a worker after a failed reopening, if its stage has others."""
        stage = worker.assignment.stage
        with self._lock:
            colleagues = sum(colleague.assignment.stage is stage for colleague in self.workers) - 1
            if colleagues:
                # Under the lock, with the count: of two replicas that are lost at once, the second one has to see that
                # it is the last.
                self.workers.remove(worker)
                self.given_up.append(worker)
        if colleagues:
            plural = "s" * (colleagues > 1)
            logger.error("%s; the stage goes on with %d other replica%s", error, colleagues, plural)
        else:
            self._context.on_break(error)

    def break_off(self) -> None:
        """Give up all workers, without waiters for their work."""
        with self._lock:
            workers = list(self.workers)
        for worker in workers:
            worker.break_off()

    def after_fork(self) -> None:
        """Drop the workers in a forked process."""
        # Their devices belong to the parent, who would lose them with these objects.
        keep((self.workers, self.given_up))
        self.workers, self.given_up = [], []

    def join(self, deadline: float | None = None) -> bool:
        """Wait for the workers until `deadline` (`time.monotonic`); return success.

        A worker that is given up meanwhile is not waited for, but the one in its place is.
        """
        # Looked up anew each time: the watchdog may put another worker in a place while this waits.
        departures: set[Worker] = set()
        while running := [worker for worker in self.workers if worker not in departures]:
            if not running[0].wait_departed(None if deadline is None else max(0.0, deadline - monotonic())):
                return False
            departures.add(running[0])
        return True
