"""Device threads: one per slot of a server's devices, serving sessions in turn."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import chain, pairwise
from queue import PriorityQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.board.device_kinds import describe_unknown, find_kind, kind_names
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime

Result = TypeVar("Result")


class DeviceTask(NamedTuple):
    """Work for a device, ordered by its first two, unique fields."""

    order: int
    number: int
    call: Callable[[DeviceRuntime], Any] | None
    outcome: Future[Any]


def offered_kinds() -> tuple[str, ...]:
    """Return the device kinds allowed on a server."""
    return tuple(sorted(kind_names(lambda kind: kind.offered_to_peers)))


class DeviceThread:
    """Device slot with its only thread, serving several sessions' stages.

    The lock of `ServerDevices` guards the number of sessions with stages here.
    """

    def __init__(self, kind: str, cores: Sequence[int], create: Callable[[Device], DeviceRuntime]) -> None:
        self.sessions = 0
        self.kind, self._cores, self._create = kind, tuple(cores), create
        # Without a bound: each session waits for its own answer, so that there are at most as many tasks as sessions.
        self._work: PriorityQueue[DeviceTask] = PriorityQueue()
        self._numbers = itertools.count()
        # A daemon: a kernel cannot be interrupted, and must not keep the server from ending.
        self._thread = threading.Thread(target=self._live, name=f"device {kind}", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[DeviceRuntime], Result], *, first: bool = False) -> Future[Result]:
        """Run `work` on the device's thread in order, `first` before it."""
        outcome: Future[Result] = Future()
        self._work.put(DeviceTask(0 if first else 1, next(self._numbers), work, outcome))
        return outcome

    def close(self) -> None:
        """End the thread after its current work."""
        self._work.put(DeviceTask(2, next(self._numbers), None, Future()))

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; return success."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _live(self) -> None:
        runtime: DeviceRuntime | None = None
        # Without a time limit: a task or the end wakes the thread.
        while (call := (work := self._work.get()).call) is not None:
            outcome = work.outcome
            # A client that has gone meanwhile has cancelled what it waited for: the device is not kept busy for nobody.
            if outcome.set_running_or_notify_cancel():
                try:
                    # In this thread, which is the one that the runtime belongs to.
                    runtime = runtime or self._open_runtime()
                    outcome.set_result(call(runtime))
                except BaseException as error:  # noqa: BLE001 - goes to who asked
                    outcome.set_exception(error)
            # Kept while the thread waits, they would keep a session's stage.
            del work, call, outcome
        if runtime is not None:
            runtime.close()

    def _open_runtime(self) -> DeviceRuntime:
        runtime = self._create(Device(self.kind, self.kind, cores=self._cores))
        runtime.open(self._cores)
        return runtime


class ServerDevices:
    """Devices of a server on some host cores, started on first use.

    Stages that may run at once have an even share of the cores each; by default one core. A device beside the CPU has
    one slot.
    """

    def __init__(
        self,
        cores: Sequence[int],
        create: Callable[[Device], DeviceRuntime] = devices.create,
        *,
        slots: int | None = None,
    ) -> None:
        self.slots = max(1, len(cores)) if slots is None else slots
        self._shares = share_cores(cores, self.slots)
        self._create, self._lock = create, threading.Lock()
        self._threads: dict[str, list[DeviceThread]] = {}

    def enter(self, kind: str) -> DeviceThread:
        """Take a device kind's least used slot, or raise `BoardError`; `leave` returns it."""
        entry = find_kind(kind)
        if entry is None or not entry.offered_to_peers:
            raise BoardError(f"there is no device {kind!r}; {describe_unknown(kind, offered_kinds())}")
        shares = self._shares if entry.is_served_in_slots else [tuple(chain(*self._shares))]
        with self._lock:
            # Under the lock: two sessions that ask at once would otherwise start two threads for one slot.
            threads = self._threads.setdefault(kind, [])
            if len(threads) < len(shares) and all(thread.sessions for thread in threads):
                threads.append(DeviceThread(kind, shares[len(threads)], self._create))
            thread = min(threads, key=lambda thread: thread.sessions)
            thread.sessions += 1
            return thread

    def leave(self, thread: DeviceThread) -> None:
        """Take a session off a slot."""
        with self._lock:
            thread.sessions -= 1

    def close(self, timeout: float = 1.0) -> bool:
        """End all threads; return success in time: kernels cannot be interrupted."""
        with self._lock:
            all_threads = [*chain(*self._threads.values())]
        for thread in all_threads:
            thread.close()
        # All are told to end before the first one is waited for.
        results = [thread.join(timeout) for thread in all_threads]
        return all(results)


def share_cores(cores: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Divide cores into even shares of neighbours, or raise `BoardError`."""
    if not cores:
        return [()] * count
    if count > len(cores):
        raise BoardError(f"{count} slots need a core each; there are {len(cores)}")
    ends = [len(cores) * number // count for number in range(count + 1)]
    return [tuple(cores[begin:end]) for begin, end in pairwise(ends)]


class TimedOutputs(NamedTuple):
    """Results of a frame, with the device's running time."""

    outputs: list[np.ndarray]
    seconds: float


class ServedStage:
    """One stage of one session, loaded on its device.

    Its version is empty: the code is the one that the client asked for.
    """

    version = ""

    def __init__(self, thread: DeviceThread, stage: StagePlan, code: Any) -> None:
        self._thread, self.stage, self._code = thread, stage, code
        self._program: Any = None

    def load(self) -> Future[None]:
        """Make it ready."""
        # Before frames that wait: a client whose pipeline begins has others to load, on other machines.
        return self._thread.do(self._load, first=True)

    def run(self, inputs: Sequence[np.ndarray]) -> Future[TimedOutputs]:
        """Run one frame."""
        return self._thread.do(lambda runtime: self._run(runtime, inputs))

    def _load(self, runtime: DeviceRuntime) -> None:
        self._program = runtime.load(self.stage, self._code)

    def _run(self, runtime: DeviceRuntime, inputs: Sequence[np.ndarray]) -> TimedOutputs:
        outputs, seconds = runtime.run_timed(self._program, [runtime.copy_in(array) for array in inputs])
        return TimedOutputs([runtime.copy_out(tensor) for tensor in outputs], seconds)
