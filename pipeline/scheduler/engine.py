"""Engine: deployments and ledger of a `Pipeline`, and their end.

The threads know the engine but not the `Pipeline` in the caller's hands, so that a forgotten one can be noticed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import chain
from time import monotonic

from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import PipelineClosed, PipelineError, describe_error
from pipeline.scheduler.admission_queue import AdmissionQueue
from pipeline.scheduler.deployment import Deployment, Deployments
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.intake import Intake
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.ledger import Ledger
from pipeline.scheduler.options import PipelineOptions
from pipeline.scheduler.statistics import Statistics, summarise_stage
from pipeline.scheduler.waiting import Latch
from pipeline.scheduler.worker_context import WorkerContext
from pipeline.system.watchdog import Watchdog


class Engine:
    """A running pipeline.

    Whoever brings another deployment holds `changing`. The first `error` that ended the pipeline stays. Raises
    `PipelineError` if a device cannot be opened or a stage not loaded; no thread is left then.
    """

    def __init__(self, builds: Sequence[Build], shapes: OpenShapes | None, options: PipelineOptions) -> None:
        # For the error in a forked process, which has none of the threads.
        self._process = os.getpid()
        self.options, self.changing = options, threading.Lock()
        self.error: BaseException | None = None
        # The latch is set when the last frame has left and no more can come; whoever waits for it holds no lock.
        self._gave_up, self._empty = False, Latch()
        # Ledger, queue and intake refer to the deployments, which need a context that refers to all of these: so they
        # are empty until the end.
        self.deployments = Deployments()
        self.ledger = Ledger(self._retire)
        self.queue = AdmissionQueue(options.admission, self.ledger, lambda: self.deployments.current.capacity)
        self.ledger.on_room = self.queue.use_room
        self.intake = Intake(
            self.ledger, self.queue, self.deployments, closed_error=self.closed_error, must_not_wait=self.must_not_wait
        )
        self._watchdog = Watchdog() if options.supervision.limited else None
        self._context = WorkerContext(
            options,
            self._watchdog,
            on_room=self.queue.use_room,
            withdraw=self.intake.withdraw,
            on_finish=self.ledger.finish,
            on_failure=self._fail,
            stop=self._stop,
            on_break=self._break,
        )
        self.deployments.current = self.open(builds, shapes)
        if self._watchdog is not None:
            # Last of all: had a device failed to open, nobody would end the thread.
            self._watchdog.start()

    @property
    def deployment(self) -> Deployment:
        """Deployment of new frames."""
        return self.deployments.current

    @property
    def closing(self) -> bool:
        """True if no more frames are accepted."""
        return self.intake.closing

    def open(self, builds: Sequence[Build], shapes: OpenShapes | None) -> Deployment:
        """Return a deployment with waiting workers."""
        return Deployment(builds, shapes, self._context)

    @uninterrupted
    def swap(self, successor: Deployment, *, for_unbuilt: bool = False) -> None:
        """Direct new frames to `successor`; earlier ones stay.

        Raises `PipelineClosed` if the pipeline is closed; the successor ends then.

        `for_unbuilt` is True if it is also for frames that have been waiting since before a close.
        """
        with self.ledger.lock:
            # A close that drains still waits for frames without a build: they need the deployment that has just been
            # opened.
            if not self.closing or (for_unbuilt and self.queue.unbuilt_frames):
                self.deployments.swap(successor)
                self._retire()
                return
        # Without the lock, which its workers may need to end.
        successor.shut()
        successor.group.join()
        raise self.closed_error()

    def give_up(self, deployment: Deployment, grace_s: float) -> None:
        """Fail a former deployment's frames after `grace_s`; workers may hang."""
        with self.ledger.lock:
            futures = [frame.future for frame in self._frames_of(deployment)]
        deadline = monotonic() + grace_s
        if all(future.wait(max(0.0, deadline - monotonic())) for future in futures):
            return
        model = deployment.plan.model
        reason = PipelineError(f"the bundle of {model!r} that this frame was in was taken back before it ended")
        with self.ledger.lock:
            deployment.is_given_up = True
            for frame in self.queue.all_frames():
                if frame.deployment is deployment:
                    self.intake.move(frame)
            # What cannot be moved has a size that only the former deployment knows.
            self.queue.refuse(lambda: PipelineError(str(reason)), deployment)
            frames = self._frames_of(deployment)
        self._end_frames(frames, reason)
        deployment.group.break_off()

    @uninterrupted
    def _end_frames(self, frames: Sequence[Frame], reason: BaseException) -> None:
        # The newest first: a place that becomes free shall not be taken by a frame that is to end.
        taken_up = [frame for frame in reversed(frames) if not self.intake.withdraw(frame, reason)]
        self.ledger.abandon(reason, taken_up)
        self.queue.settle()

    def _frames_of(self, deployment: Deployment) -> list[Frame]:
        """Return a deployment's waiting and running frames, under the ledger's lock."""
        frames = chain(self.ledger.frames(), self.queue.all_frames())
        return [frame for frame in frames if frame.deployment is deployment]

    def drain(self, timeout: float | None) -> None:
        """Wait for all submitted frames to end; see `Pipeline.drain`."""
        with self.ledger.lock:
            # Paused, those that wait to start would not end, however long one waits.
            queued_frames = [] if self.queue.is_paused else self.queue.frames()
            futures = [frame.future for frame in (*self.ledger.frames(), *queued_frames)]
        if futures and self.must_not_wait():
            # It would wait for its own frame, which ends when the callback has returned.
            raise TimeoutError("a callback must not wait for its own pipeline")
        deadline = None if timeout is None else monotonic() + timeout
        for future in futures:
            if not future.wait(None if deadline is None else max(0.0, deadline - monotonic())):
                open_count = sum(not future.done() for future in futures)
                raise TimeoutError(f"{open_count} frames were not finished within {timeout} s")

    @uninterrupted
    def pause(self) -> None:
        """Start no more frames until `resume`, except while closing."""
        # Under the lock: a close in between would be undone, and its last frames would wait for ever.
        with self.ledger.lock:
            self.queue.is_paused = not self.closing

    def resume(self) -> None:
        """Start frames again."""
        self.queue.is_paused = False
        # Those that wait would otherwise start only when the next frame ends.
        self.queue.settle()

    @uninterrupted
    def close(self) -> None:
        """Accept no more frames; workers end after the last."""
        with self.ledger.lock:
            self.intake.closing = True
            self.queue.refuse(self.closed_error)
            # Frames that were submitted before are finished, also those of a paused pipeline.
            self.queue.is_paused = False
            self._retire()
        self.queue.settle()

    @uninterrupted
    def abandon(self, reason: BaseException, last_kept: int = -1) -> None:
        """Accept no more frames, and fail those numbered above `last_kept`.

        Devices that keep a worker busy are not waited for.  Frames that no stage has taken up are cancelled.
        """
        with self.ledger.lock:
            # Paused first: each frame that ends below makes room, in which the next one must not start.
            self.intake.closing = self.queue.is_paused = self._gave_up = True
            self.queue.refuse(self.closed_error)
            queued_futures = [frame.future for frame in self.queue.frames()]
        # Without the lock: a cancelled future calls back.
        for future in queued_futures:
            future.cancel()
        # Frames in front of the one that stopped the pipeline still need the workers.
        if last_kept < 0:
            self._shut()
        self.ledger.abandon(reason, self.ledger.frames(last_kept))
        self.close()

    def after_fork(self) -> None:
        """Close in a forked process, failing its frames."""
        self.changing = threading.Lock()  # a thread of the parent may hold it
        # A pipeline that was closed before the fork says that, rather than this.
        if not self.closing:
            self.error = PipelineClosed(
                f"it belongs to process {self._process}, from which this one was forked; load it after the fork"
            )
        self.intake.closing = True
        # No lock is taken here: whoever held it in the parent does not exist in this process.
        for deployment in self.deployments.list_alive():
            deployment.group.after_fork()
        self.queue.after_fork()
        self.ledger.after_fork(self.closed_error())
        self._empty.set()

    def closed_error(self) -> PipelineClosed:
        """Return the error for late calls."""
        if self.error is None:
            return PipelineClosed("the pipeline is closed; it takes no more frames")
        return self._stop_error(self.error)

    def unfinished_error(self) -> PipelineClosed:
        """Return the error of frames unfinished at the close."""
        return PipelineClosed(f"the pipeline {self.deployment.plan.model!r} was closed before this frame was finished")

    def join(self, timeout: float | None = None) -> bool:
        """Wait for frames, then workers, at most `timeout` seconds in all.

        Where frames have been given up, whatever may still be in a device is not waited for. Returns True if all frames
        have ended, and the workers that are waited for.
        """
        deadline = None if timeout is None else monotonic() + timeout
        # First the frames, then the workers: these end only when no frame can come any more.
        if not self._empty.wait(timeout):
            return False
        if self._gave_up:
            return True
        is_complete = self.deployments.join(deadline)
        if is_complete and self._watchdog is not None:
            self._watchdog.join()
        return is_complete

    def must_not_wait(self) -> bool:
        """Test for threads of stages or callbacks: waiting would deadlock."""
        me = threading.get_ident()
        # A worker that waits for its own pipeline waits for itself, whether it is in a callback or in a stage of the
        # user's.
        return me in self.ledger.callers or me in self._context.worker_threads

    def statistics(self) -> Statistics:
        """Return a snapshot, consistent since counted under the lock."""
        with self.ledger.lock:
            deployment, counts = self.deployment, self.ledger.counts()
            waiting_count, blocked_callers = len(self.queue), self.queue.blocked_callers
            counters = [self.deployments.counters(stage.name) for stage in deployment.plan.stages]
        # Without the lock: sorting durations takes long, and workers write them without it.
        stages = [
            summarise_stage(stage, counters[number], deployment.queue_length(number), counts.elapsed_s)
            for number, stage in enumerate(deployment.plan.stages)
        ]
        return Statistics(
            **counts._asdict(),
            frames_per_s=counts.delivered / counts.elapsed_s if counts.elapsed_s else 0.0,
            latency_s=self.ledger.latency.percentiles(),
            stages=tuple(stages),
            waiting=waiting_count,
            blocked_callers=blocked_callers,
            forecast_s=deployment.forecast(),
        )

    def _retire(self) -> None:
        """Retire idle deployments, under the ledger's lock."""
        if self.deployments.former:
            # Frames that wait have chosen their deployment too.
            self.deployments.retire(chain(self.ledger.frames(), self.queue.all_frames()))
        if self.closing and not self.ledger and not self.queue.frames():
            self._shut()
            self._empty.set()

    def _shut(self) -> None:
        self.deployments.shut()
        if self._watchdog is not None:
            self._watchdog.stop()

    def _fail(self, frame: Frame, error: BaseException) -> None:
        # "skip" needs nothing here: the frame carries its error to its own future.
        if self.options.supervision.on_error == "stop":
            self._stop(error, frame.number)

    def _stop(self, error: BaseException, last_kept: int = -1) -> None:
        with self.ledger.lock:
            # The first one wins.  But it may have left frames in front of it to be finished, which none will be now.
            if self.error is None:
                self.error = error
            elif last_kept >= 0:
                return
        self.abandon(self._stop_error(self.error), last_kept)

    def _stop_error(self, error: BaseException) -> PipelineClosed:
        reason = PipelineClosed(
            f"the pipeline {self.deployment.plan.model!r} has stopped: {describe_error(error, kind=False)}"
        )
        reason.__cause__ = error
        return reason

    def _break(self, error: BaseException) -> None:
        model = self.deployment.plan.model
        # Not the user's code or device, whose errors belong to frames: without the worker no frame can pass its stage.
        failure = PipelineError(f"a worker of the pipeline {model!r} broke: {describe_error(error)}")
        failure.__cause__ = error
        self._stop(failure)
