"""Engine: what runs behind a `Pipeline`: the flows, the entrance and the ledger, and what stops them.

The threads know the engine but not the `Pipeline` in the caller's hands, so that a forgotten one can be noticed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from itertools import chain
from time import monotonic

from pipeline.errors import FrameDropped, PipelineClosed, PipelineError, StageTimeout
from pipeline.scheduler.entrance import Entrance, Ticket
from pipeline.scheduler.flow import Flow
from pipeline.scheduler.flows import Flows
from pipeline.scheduler.frame import Frame, FrameFuture
from pipeline.scheduler.inputs import Accepted
from pipeline.scheduler.ledger import Ledger
from pipeline.scheduler.observation import Observer
from pipeline.scheduler.settings import Settings
from pipeline.scheduler.surroundings import Surroundings
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.watchdog import Run, Watchdog
from pipeline.sizes import Build, OpenShapes

logger = logging.getLogger(__name__)


class Engine:
    """A pipeline that is running.

    Parameters
    ----------
    builds, shapes
        As for `Flow`.
    settings : Settings

    Attributes
    ----------
    flows : Flows
        The workers.
    error : BaseException or None
        What ended the pipeline; the first one stays.
    closing : bool
        Whether no more frames are accepted.
    trace : Trace or None
        Where events are noted.
    observers : tuple of callable
        Who is shown each frame that comes in.

    Raises
    ------
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.
    """

    def __init__(self, builds: Sequence[Build], shapes: OpenShapes | None, settings: Settings) -> None:
        self.error: BaseException | None = None
        self.closing = False
        self.trace: Trace | None = settings.trace
        self.observers: tuple[Observer, ...] = ()
        self.flows = Flows()
        self._supervision = settings.supervision
        self.ledger = Ledger(self._left, lambda: self.entrance.freed())  # noqa: PLW0108 - made right after
        self.entrance = Entrance(settings.admission, self.ledger, lambda: self.flows.current.capacity)
        self._watchdog = Watchdog(self._expired) if settings.supervision.limited else None
        self._around = Surroundings(
            create=settings.create,
            freed=self.entrance.freed,
            withdraw=self.withdraw,
            finished=self.ledger.finish,
            failed=self._failed,
            broke=self._broke,
            trace=settings.trace,
            watchdog=self._watchdog,
            limit=settings.supervision.limit,
        )
        self.flows.current = self.open(builds, shapes)
        if self._watchdog is not None:
            self._watchdog.start()

    @property
    def flow(self) -> Flow:
        """The one that new frames go through."""
        return self.flows.current

    def open(self, builds: Sequence[Build], shapes: OpenShapes | None) -> Flow:
        """Return a flow whose workers wait for frames."""
        return Flow(builds, shapes, self._around)

    def submit(
        self,
        accepted: Accepted,
        future: FrameFuture,
        ticket: Callable[[], Ticket] | None = Ticket,
        *,
        borrowed: bool = False,
    ) -> Ticket | None:
        """Start a frame, or let it wait, or drop it, as the admission policy says; see `Entrance.submit`.

        Raises
        ------
        PipelineClosed
            If the pipeline is closed.
        """
        with self.ledger.lock:
            if self.closing:
                raise self.closed()
            flow = self.flows.current
            if accepted.check is not flow.check:  # another bundle came meanwhile
                accepted = flow.check.find(accepted)
            frame = flow.frame(accepted, future, borrowed=borrowed)
            future.frame = frame
            try:
                held = self.entrance.submit(frame, ticket)
            except KeyboardInterrupt:
                # In the middle: some first stages may have got the frame and others not.
                self.abandon(self.closed_before())
                raise
        if held is not None or self.entrance.admission.drops:
            # Also for room that was made while the frame took its place in the line.
            self.entrance.settle()
        for observer in self.observers:
            observer(accepted.arrays, future)
        return held

    def withdraw(self, frame: Frame, reason: BaseException) -> bool:
        """End a frame with `reason` and free its places, unless a stage has taken it up; return whether it was so."""
        if not frame.withdraw(reason):
            return False
        with self.ledger.lock:
            self.entrance.remove(frame)
            if frame in self.ledger:
                frame.flow.take_back(frame)
        self.ledger.end_withdrawn(frame)
        return True

    def swap(self, fresh: Flow) -> None:
        """Let all frames submitted from now on go through `fresh`; those before them stay in the flow that they are in.

        Raises
        ------
        PipelineClosed
            If the pipeline is closed; the fresh flow ends then.
        """
        with self.ledger.lock:
            if not self.closing:
                self.flows.swap(fresh)
                self._left()
                return
        fresh.shut()
        fresh.join()
        raise self.closed()

    def drain(self, timeout: float | None) -> None:
        """Wait until the frames submitted so far have ended; see `Pipeline.drain`."""
        with self.ledger.lock:
            waiting = [] if self.entrance.paused else self.entrance.frames()
            futures = [frame.future for frame in (*self.ledger.frames(), *waiting)]
        if futures and self.inside():
            raise TimeoutError("a callback must not wait for its own pipeline")
        if left := wait(futures, timeout).not_done:
            raise TimeoutError(f"{len(left)} frames were not finished within {timeout} s")

    def flush(self) -> int:
        """Drop the frames that no stage has taken up, and return how many there were."""
        with self.ledger.lock:
            frames = [*self.ledger.frames(), *self.entrance.frames()]
        # The newest first: a place that becomes free shall not be taken by a frame that is to be dropped.
        return sum(self.withdraw(frame, FrameDropped(frame.number, "flushed")) for frame in reversed(frames))

    def close(self) -> None:
        """Take no more frames; the workers end once those that are in have."""
        with self.ledger.lock:
            self.closing = True
            self.entrance.refuse(self.closed)
            self.entrance.paused = False
            self._left()
        self.entrance.settle()

    def abandon(self, reason: BaseException, after: int = -1) -> None:
        """Take no more frames, and give up those with numbers above `after`, also where a device keeps a worker busy.

        Frames that no stage has taken up are cancelled.
        """
        with self.ledger.lock:
            self.closing = self.entrance.paused = True
            self.entrance.refuse(self.closed)
            waiting = [frame.future for frame in self.entrance.frames()]
        for future in waiting:
            future.cancel()
        if after < 0:
            self._shut()
        self.ledger.abandon(reason, after)
        self.close()

    def closed(self) -> PipelineClosed:
        """Return the error of those who come too late."""
        if self.error is None:
            return PipelineClosed("the pipeline is closed; it takes no more frames")
        return self._stopped(self.error)

    def closed_before(self) -> PipelineClosed:
        """Return the error of frames that a close did not wait for."""
        return PipelineClosed(f"the pipeline {self.flow.plan.model!r} was closed before this frame was finished")

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the workers' end, at most `timeout` seconds in all, and return whether they have ended.

        Those that have been given up are not waited for.
        """
        deadline = None if timeout is None else monotonic() + timeout
        ended = self.flows.join(deadline)
        if ended and self._watchdog is not None:
            self._watchdog.join()
        return ended

    def inside(self) -> bool:
        """Whether the calling thread must not wait for frames, because it runs stages or callbacks of frames."""
        me = threading.get_ident()
        return me == self.ledger.deliverer or me in self._around.crew

    def _left(self) -> None:
        """See whether the last frame of something has left; under the ledger's lock."""
        if self.flows.replaced:
            self.flows.retire(chain(self.ledger.frames(), self.entrance.all()))
        if self.closing and not self.ledger and not self.entrance.frames():
            self._shut()

    def _shut(self) -> None:
        self.flows.shut()
        if self._watchdog is not None:
            self._watchdog.stop()

    def _failed(self, frame: Frame, error: BaseException) -> None:
        if self._supervision.on_error == "stop":
            self._stop(error, frame.number)

    def _stop(self, error: BaseException, after: int = -1) -> None:
        with self.ledger.lock:
            if self.error is not None:  # the first one wins
                return
            self.error = error
        self.abandon(self._stopped(error), after)

    def _stopped(self, error: BaseException) -> PipelineClosed:
        reason = PipelineClosed(f"the pipeline {self.flow.plan.model!r} has stopped: {error}")
        reason.__cause__ = error
        return reason

    def _expired(self, run: Run) -> None:
        post = run.worker.post
        error = StageTimeout(post.stage.name, run.worker.device, run.frame.number, monotonic() - run.started)
        logger.warning("%s; its device is restarted", error)
        run.worker.give_up(run, error)
        try:
            if self._supervision.on_timeout == "fail-pipeline":
                self._stop(error)
            else:
                run.frame.flow.replace(run)
        except BaseException as cause:  # noqa: BLE001 - ends the pipeline
            self._broke(cause)
        finally:
            run.worker.left.set()

    def _broke(self, error: BaseException) -> None:
        what = PipelineError(
            f"a worker of the pipeline {self.flow.plan.model!r} broke: {type(error).__name__}: {error}"
        )
        what.__cause__ = error
        self._stop(what)
