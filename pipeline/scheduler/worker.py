"""Worker: thread of one stage or replica."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any, Protocol

from pipeline.errors import PipelineError, StageError, StageTimeout
from pipeline.executor.devices.base import DeviceRuntime, NumberedRuntime
from pipeline.scheduler.copies import StageCopies
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.heterogeneous import HeterogeneousRuntime
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.stage_device import Reopening, StageDevice
from pipeline.scheduler.stream_states import StageState
from pipeline.scheduler.switch_interval import CAN_SAMPLE, SampledRun
from pipeline.scheduler.turns import Loan, Turns
from pipeline.scheduler.waiting import Latch
from pipeline.scheduler.worker_context import Assignment, RunNotes
from pipeline.system.threads import Lease
from pipeline.system.watchdog import TimedRun

logger = logging.getLogger(__name__)


class Supervisor(Protocol):
    """Group of workers that replaces or loses them."""

    def replace(self, worker: Worker, frame: Frame) -> None:
        """Start a replacement worker, which passes the frame on."""

    def lose(self, worker: Worker, error: BaseException) -> None:
        """Continue without a worker after a failed reopening."""


class Worker:
    """Takes frames from a channel, runs its stage, passes them on.

    The runtime is used in the worker's thread only; the supervisor learns of a device that does not come back. `first`
    is a frame that the stage has failed on, to be passed on before anything else.

    Attributes
    ----------
    given_up : bool
        True if the device did not come back in time: the thread ends when it does, and touches nothing.
    departure : Latch
        Latch that is set when the worker has ended, or has been given up and replaced.
    opened_s : float
        Seconds that its device took to be there.
    """

    def __init__(
        self, assignment: Assignment, runtime: DeviceRuntime, supervisor: Supervisor, first: Frame | None = None
    ) -> None:
        stage, replica, context = assignment.stage, assignment.replica, assignment.context
        self.assignment, self.counters, self.given_up = assignment, assignment.counters, False
        self._context, self._supervisor, self._first = context, supervisor, first
        self._device = StageDevice(assignment, runtime)
        # Fields of the assignment that each frame asks for.
        self._root, self._inbox = not assignment.wiring.predecessors, assignment.inbox
        self._pass_on, self._run_program = assignment.pass_on, runtime.run
        self._loan: Loan | None = None
        if assignment.turns is not None:
            self._run_program = partial(self._run_in_turn, runtime, assignment.turns)
        elif CAN_SAMPLE and _waits_only_for_python(assignment, runtime):
            self._run_program = SampledRun(runtime.run, assignment.counters)
        self._frame_number = 0
        self._watchdog = context.watchdog if assignment.limit else None
        # Most stages have neither limit nor shared cores: their frames pay for no lock and no clock.
        self._is_guarded = bool(assignment.cores) or self._watchdog is not None
        self._timed_run: TimedRun | None = None
        self._steps = runtime if isinstance(runtime, HeterogeneousRuntime) else None
        self._numbered = runtime if isinstance(runtime, NumberedRuntime) else None
        if self._steps is not None and self._watchdog is not None:
            self._steps.wait = self._wait_untimed
        self._copies = StageCopies(runtime, assignment.wiring, assignment.readers)
        self._state = StageState(runtime, assignment.states) if assignment.states else None
        self._notes = RunNotes(assignment, may_copy=self._copies.may_copy)
        name = f"stage {stage.name}" + (f" {replica}" if stage.replicas > 1 else "")
        # A device may leave a pool of helpers in its thread, which the next worker of its kind takes over.
        self._lease = Lease(self._live, name, runtime.thread_kind(stage.cores_of(replica)))
        self.departure = Latch()
        # Without a time limit where it is read: loading takes as long as it takes, and Ctrl-C ends the wait.
        self._opening: SimpleQueue[BaseException | None] = SimpleQueue()
        self._reopening: Reopening | None = None
        self.opened_s = 0.0

    @uninterrupted
    def start(self, limit: float | None = None) -> None:
        """Start the thread; `wait_opened` returns the outcome.

        With a limit, in seconds, the device is opened again in place of another one: if it is not there in time, or
        fails, the worker is lost, and nobody has to wait for it.
        """
        if limit is not None:
            self._reopening = Reopening(limit, lambda: self._open_too_late(limit))
        self._lease.start()

    def wait_opened(self) -> None:
        """Wait until the device has loaded the stage, or raise `PipelineError`."""
        if (error := self._opening.get()) is not None:
            raise error

    @property
    def device(self) -> str:
        """Name of its device."""
        return self._device.name

    def break_off(self) -> None:
        """Abort the device's call, except on borrowed devices."""
        self.given_up = True
        if self._loan is not None:
            self._loan.release()
        self._device.break_off()

    def join(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for the thread to finish; return success."""
        # A worker whose thread was never started, or is the caller's own, cannot be waited for.
        return not self._lease.begun_elsewhere() or self._lease.join(timeout)

    def wait_departed(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for the worker's end or replacement; return success."""
        if not self._lease.begun_elsewhere():
            return True
        return self.departure.wait(timeout) and (self.given_up or self.join())

    def _live(self) -> bool:
        """Test if the thread is reusable, not hung in its device."""
        me = threading.get_ident()
        self._context.worker_threads.add(me)
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - ends the pipeline, and is its frames' error
            self._context.on_break(error)
        finally:
            # The system uses identifiers again: a later thread with this one must be able to wait for frames.
            self._context.worker_threads.discard(me)
            self.departure.set()
        return not self.given_up

    def _work(self) -> None:
        if self._first is not None:  # it does not wait for the device
            self._pass_on(self._first)
            self._first = None
        if (programs := self._opened_programs()) is None:
            return
        try:
            self._serve(programs)
        finally:
            self._device.close()

    def _opened_programs(self) -> list[Any] | None:
        """Return the loaded stages; None after a failure, with waiters notified."""
        begin = perf_counter()
        if self._reopening is not None:
            # From here on, not from `start`: the frame that was passed on first may have waited for a place.
            self._reopening.begin()
        try:
            programs = self._device.open()
        except BaseException as error:  # noqa: BLE001 - raised by wait_opened
            self._no_start(self._device.start_error(error))
            return None
        # Too late: the worker has been given up meanwhile, and the device is nobody's.
        if self._reopening is not None and not self._reopening.end():
            self._device.close()
            return None
        self.opened_s = perf_counter() - begin
        self._opening.put(None)
        return programs

    def _no_start(self, error: BaseException) -> None:
        if self._reopening is None:
            self._opening.put(error)
        # Only if the clock has not already told of it.
        elif self._reopening.end():
            self._supervisor.lose(self, error)

    def _open_too_late(self, limit: float) -> None:
        """Give up a device not open in time; called from another thread."""
        self.given_up = True
        self._device.break_off()
        error = PipelineError(f"{self._device} cannot start: it was not opened again within {limit:.3g} s")
        self._supervisor.lose(self, error)
        self.departure.set()

    def _serve(self, programs: Sequence[Any]) -> None:
        # Given up, it must take no more: the channel is its successor's.
        # Without a time limit: a frame or the end of the channel wakes the worker, and one that idles costs nothing.
        while not self.given_up and (arrival := self._inbox.get()) is not None:
            self._process(programs, *arrival)
            del arrival  # it would keep the frame's tensors while the worker waits for the next

    def _process(self, programs: Sequence[Any], frame: Frame, arrival_s: float) -> None:
        # Only first stages can meet a frame that was taken back: later ones get it from a stage that has begun it.
        if self._root and not frame.begin():
            return
        self.counters.frames_in += 1
        if frame.error is None:
            if self._is_guarded:
                self._run_guarded(programs[frame.build], frame, arrival_s)
            else:
                self._attempt(programs[frame.build], frame, arrival_s)
        else:
            self.counters.skipped += 1
        # Given up, the frame is the successor's, who may have passed it on already.
        if not self.given_up:
            self._pass_on(frame)

    def _run_guarded(self, program: Any, frame: Frame, arrival_s: float) -> None:
        # Taken before the clock starts: waiting for another stage's core is not this one's fault.  No limit is needed:
        # the holder gives the core back after its run, or the watchdog does if that takes too long.
        for core in self.assignment.cores:
            core.acquire()
        if self._watchdog is not None:
            # Refers to the frame only as long as the run lasts.
            self._timed_run = self._watchdog.begin(self.assignment.limit, partial(self._expire, frame))
        self._attempt(program, frame, arrival_s)
        if not self.given_up:
            self._leave_cores()

    def _wait_untimed(self, wait: Callable[[], None]) -> None:
        """Wait for a borrowed device outside the run's time limit: others cause it."""
        run, watchdog = self._timed_run, self._watchdog
        if run is None or watchdog is None:
            wait()
        elif self._in_time():
            spent_s = monotonic() - run.start_s
            wait()
            self._timed_run = watchdog.begin(self.assignment.limit, run.expire, spent_s)
        else:
            # The frame has gone on without this worker, which must not touch the device.
            raise PipelineError(f"{self._device} was given up")

    def _attempt(self, program: Any, frame: Frame, arrival_s: float) -> None:
        begin_s = perf_counter()
        try:
            times = self._run(program, frame)
        except BaseException as error:  # noqa: BLE001 - travels with the frame
            if self._in_time():
                self._notes.event(frame.number, "queue", arrival_s, begin_s)
                self._notes.event(frame.number, "failed", begin_s, perf_counter())
                self._fail(frame, error)
        else:
            # Most runs have no limit: they pay for no call.
            if self._timed_run is None or self._in_time():
                self._notes.run(frame.number, (arrival_s, begin_s, *times))
                if self._steps is not None:
                    self._notes.steps(frame.number, self._steps.times)

    def _run(self, program: Any, frame: Frame) -> tuple[float, float, float]:
        # Copies count as part of the limit: they may hang in a device as well.
        inputs = self._copies.take(frame)
        if self._state is not None:
            self._state.fill(frame.turn, inputs)
        self._frame_number = frame.number
        if self._numbered is not None:
            self._numbered.frame_number = frame.number
        ready_s = perf_counter()
        outputs = self._run_program(program, inputs)
        if self._state is not None:
            self._state.keep(frame.turn, outputs)
        ran_s = perf_counter()
        self._copies.leave(frame, outputs)
        return ready_s, ran_s, perf_counter()

    def _run_in_turn(self, runtime: DeviceRuntime, turns: Turns, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run the stage on a device borrowed by other stages' steps."""
        self._loan = Loan(turns, self._frame_number, self._wait_untimed)
        return runtime.run_in_turn(program, inputs, self._loan)

    def _in_time(self) -> bool:
        run, self._timed_run = self._timed_run, None
        if run is not None and self._watchdog is not None and not self._watchdog.end(run):
            self.given_up = True
        return not self.given_up

    def _fail(self, frame: Frame, error: BaseException) -> None:
        self.counters.failed += 1
        # The first error stays: with branches, another stage may have failed on the frame already.
        failure = StageError(self.assignment.stage.name, self.device, frame.number, error, self._device.step)
        frame.fail(failure)
        self._context.on_failure(frame, failure)

    def _leave_cores(self) -> None:
        for core in self.assignment.cores:
            core.release()
        if self._loan is not None:
            self._loan.release()

    def _expire(self, frame: Frame, run: TimedRun) -> None:
        """Give up a run over its limit, in the watchdog's thread."""
        # The device's thread may stay in native code for long; it owns nothing any more: `end` has decided.
        stage, spent_s = self.assignment.stage.name, monotonic() - run.start_s
        error = StageTimeout(stage, self.device, frame.number, spent_s, self._device.step)
        logger.warning("%s; its device is restarted", error)
        self._give_up(frame, run, error)
        try:
            if self._context.options.supervision.on_timeout == "fail-pipeline":
                self._context.stop(error)
            else:
                self._supervisor.replace(self, frame)
        except BaseException as cause:  # noqa: BLE001 - ends the pipeline
            self._context.on_break(cause)
        finally:
            self.departure.set()

    def _give_up(self, frame: Frame, run: TimedRun, error: BaseException) -> None:
        """Take frame and cores from the device's thread, for passing on."""
        self.given_up = True
        self.counters.failed += 1
        self._leave_cores()
        # The trace has another clock than the watchdog.
        end_s = perf_counter()
        self._notes.event(frame.number, "failed", end_s - (monotonic() - run.start_s), end_s)
        frame.fail(error)
        self._context.on_failure(frame, error)
        self._device.break_off()


def _waits_only_for_python(assignment: Assignment, runtime: DeviceRuntime) -> bool:
    """Test if a run computes in the worker's thread all the time, and waits for no other."""
    # Compiled kernels spin for their helpers; other libraries may sleep until theirs are done.
    cores = assignment.stage.cores_of(assignment.replica)
    computes_here = runtime.device.capabilities.is_processor or len(cores) == 1
    return runtime.occupies_cores and computes_here and not assignment.stage.steps
