"""Worker: the thread of one stage, or of one of its replicas."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any

from pipeline.errors import PipelineError, StageError
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.copies import StageCopies
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.post import Post
from pipeline.scheduler.watchdog import Run

logger = logging.getLogger(__name__)


class Worker:
    """Takes frames from a channel, runs its stage on them and passes them on, in one thread.

    Parameters
    ----------
    post : Post
        What to do.
    runtime : DeviceRuntime
        What to do it on; used in the worker's thread only.
    copies : StageCopies
        What to take from a frame and leave in it.
    first : Frame, optional
        A frame that the stage has failed on, to be passed on before anything else.

    Attributes
    ----------
    given_up : bool
        Whether the device did not come back in time: the thread ends when it does, and touches nothing.
    left : threading.Event
        Set when the worker has ended, or has been given up and replaced.
    """

    def __init__(self, post: Post, runtime: DeviceRuntime, copies: StageCopies, first: Frame | None = None) -> None:
        self.post, self.counters, self.given_up = post, post.counters, False
        self._runtime, self._copies, self._first = runtime, copies, first
        self._root, self._inbox, self._pass_on = post.root, post.inbox, post.pass_on
        self._guarded = bool(post.cores) or post.watchdog is not None
        name = f"stage {post.stage.name}" + (f" {post.replica}" if post.stage.replicas > 1 else "")
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.left = threading.Event()
        self._opened: SimpleQueue[BaseException | None] = SimpleQueue()

    def start(self) -> None:
        """Start the thread; `wait_opened` tells what came of it."""
        self._thread.start()

    def wait_opened(self) -> None:
        """Wait until the device has loaded the stage.

        Raises
        ------
        PipelineError
            If the device cannot be opened or the stage not loaded.
        """
        if (error := self._opened.get()) is not None:
            raise error

    def give_up(self, run: Run, error: BaseException) -> None:
        """Take the frame and the cores from a run that the watchdog has ended; the frame still has to be passed on."""
        self.given_up = True
        self.counters.failed += 1
        self._leave_cores()
        now = perf_counter()
        self._trace(run.frame.number, "failed", now - (monotonic() - run.started), now)
        run.frame.fail(error)
        self.post.failed(run.frame, error)

    @property
    def device(self) -> str:
        """Name of its device."""
        return self._runtime.device.name

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end, at most `timeout` seconds, and return whether it has ended."""
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait_left(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until the worker has ended or been replaced, and return whether it has."""
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        return self.left.wait(timeout) and (self.given_up or self.join())

    def _live(self) -> None:
        try:
            programs = self._open()
        except BaseException as error:  # noqa: BLE001 - raised by wait_opened
            self._opened.put(self._no_start(error))
            self.left.set()
            return
        me = threading.get_ident()
        self.post.crew.add(me)
        self._opened.put(None)
        try:
            self._serve(programs)
        except BaseException as error:  # noqa: BLE001 - ends the pipeline, and is its frames' error
            self.post.broke(error)
        finally:
            self._close()
            self.post.crew.discard(me)
            self.left.set()

    def _open(self) -> list[Any]:
        self._runtime.open(self.post.stage.cores_of(self.post.replica))
        try:
            return [self._runtime.load(stage, code) for stage, code in self.post.loads]
        except BaseException:
            self._close()
            raise

    def _no_start(self, error: BaseException) -> BaseException:
        if not isinstance(error, PipelineError):
            where = f"stage {self.post.stage.name!r} on device {self.device!r}"
            cause, error = error, PipelineError(f"{where} cannot start: {type(error).__name__}: {error}")
            error.__cause__ = cause
        if self._first is not None:  # nobody waits for a replacement to open
            self.post.broke(error)
        return error

    def _close(self) -> None:
        try:
            self._runtime.close()
        except Exception:
            logger.exception("device %r of stage %r could not be closed", self.device, self.post.stage.name)

    def _serve(self, programs: Sequence[Any]) -> None:
        if self._first is not None:
            self._pass_on(self._first)
            self._first = None
        while not self.given_up and (arrival := self._inbox.get()) is not None:
            self._process(programs, *arrival)
            del arrival  # it would keep the frame's tensors while the worker waits for the next

    def _process(self, programs: Sequence[Any], frame: Frame, queued: float) -> None:
        if self._root and not frame.begin():
            return
        self.counters.frames_in += 1
        if frame.error is None:
            if self._guarded:
                self._run_guarded(programs[frame.build], frame, queued)
            else:
                self._attempt(programs[frame.build], frame, queued)
        else:
            self.counters.skipped += 1
        if not self.given_up:
            self._pass_on(frame)

    def _run_guarded(self, program: Any, frame: Frame, queued: float) -> None:
        post = self.post
        for core in post.cores:
            core.acquire()
        run = post.watchdog.begin(self, frame, post.limit) if post.watchdog is not None else None
        self._attempt(program, frame, queued, run)
        if not self.given_up:
            self._leave_cores()

    def _attempt(self, program: Any, frame: Frame, queued: float, run: Run | None = None) -> None:
        taken = perf_counter()
        try:
            times = self._run(program, frame)
        except BaseException as error:  # noqa: BLE001 - travels with the frame
            if run is None or self._in_time(run):
                self._trace(frame.number, "queue", queued, taken)
                self._trace(frame.number, "failed", taken, perf_counter())
                self._fail(frame, error)
        else:
            if run is None or self._in_time(run):
                self._note(frame.number, (queued, taken, *times))

    def _run(self, program: Any, frame: Frame) -> tuple[float, float, float]:
        inputs = self._copies.take(frame)
        ready = perf_counter()
        outputs = self._runtime.run(program, inputs)
        ran = perf_counter()
        self._copies.leave(frame, outputs)
        return ready, ran, perf_counter()

    def _in_time(self, run: Run) -> bool:
        watchdog = self.post.watchdog
        if watchdog is not None and not watchdog.end(run):
            self.given_up = True
        return not self.given_up

    def _fail(self, frame: Frame, error: BaseException) -> None:
        self.counters.failed += 1
        failure = StageError(self.post.stage.name, self.device, frame.number, error)
        frame.fail(failure)
        self.post.failed(frame, failure)

    def _note(self, number: int, times: tuple[float, float, float, float, float]) -> None:
        queued, taken, ready, ran, left = times
        self.counters.ran(taken - queued, ready - taken + left - ran, ran - ready)
        if self.post.trace is None:
            return
        for kind, start, end in zip(("queue", "copy", "run", "copy"), times, times[1:], strict=False):
            if kind != "copy" or self._copies.needed:
                self._trace(number, kind, start, end)

    def _trace(self, number: int, kind: str, start: float, end: float) -> None:
        if (trace := self.post.trace) is not None:
            trace.add(self.post.stage.name, number, kind, start, end, self.post.replica)

    def _leave_cores(self) -> None:
        for core in self.post.cores:
            core.release()
