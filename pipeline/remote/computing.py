"""The devices of a server: each computes in one thread, for all sessions in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pipeline.board import Device
from pipeline.errors import BoardError, near
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import StagePlan

Result = TypeVar("Result")
_Work = tuple[Callable[[DeviceRuntime], Any], "Future[Any]"]

ELSEWHERE = ("python", "remote", "rpc")
"""Kinds that a server does not offer: functions do not travel, and a server passes nothing on."""


def offered() -> tuple[str, ...]:
    """Return the kinds of device that a server may have."""
    return tuple(sorted(set(devices.KINDS) - set(ELSEWHERE)))


class DeviceThread:
    """One device of the server, used by its own thread only: stages of several sessions take turns.

    Parameters
    ----------
    kind : str
        Which device.
    cores : sequence of int
        Host cores that it may use.
    """

    def __init__(self, kind: str, cores: Sequence[int]) -> None:
        self.kind, self._cores = kind, tuple(cores)
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._live, name=f"device {kind}", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[DeviceRuntime], Result]) -> Future[Result]:
        """Let the thread call `work` with the device's runtime."""
        done: Future[Result] = Future()
        self._work.put((work, done))
        return done

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        self._work.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end, and return whether it has come."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _live(self) -> None:
        runtime: DeviceRuntime | None = None
        while (work := self._work.get()) is not None:
            call, done = work
            if done.set_running_or_notify_cancel():
                try:
                    runtime = runtime or self._opened()
                    done.set_result(call(runtime))
                except BaseException as error:  # noqa: BLE001 - goes to who asked
                    done.set_exception(error)
            # Kept while the thread waits, they would keep a session's stage.
            del work, call, done
        if runtime is not None:
            runtime.close()

    def _opened(self) -> DeviceRuntime:
        runtime = devices.create(Device(self.kind, self.kind, cores=self._cores))
        runtime.open(self._cores)
        return runtime


class Computing:
    """All devices of a server, each started when a stage first asks for it.

    Parameters
    ----------
    cores : sequence of int
        Host cores that they may use.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores, self._lock = tuple(cores), threading.Lock()
        self._threads: dict[str, DeviceThread] = {}

    def device(self, kind: str) -> DeviceThread:
        """Return the device of that kind.

        Raises
        ------
        BoardError
            If the server has none.
        """
        if kind not in offered():
            raise BoardError(f"there is no device {kind!r}; there are {', '.join(offered())}{near(kind, offered())}")
        with self._lock:
            if kind not in self._threads:
                self._threads[kind] = DeviceThread(kind, self._cores)
            return self._threads[kind]

    def close(self, timeout: float = 1.0) -> bool:
        """End all threads, and return whether they have ended in time: a kernel cannot be interrupted."""
        for thread in self._threads.values():
            thread.close()
        ended = [thread.join(timeout) for thread in self._threads.values()]
        return all(ended)


class Ran(NamedTuple):
    """A frame's results, and for how long the device ran."""

    outputs: list[np.ndarray]
    seconds: float


class Program:
    """One stage of one session, loaded on its device.

    Parameters
    ----------
    thread : DeviceThread
    stage : StagePlan
    code : StageCode or None

    Attributes
    ----------
    stage : StagePlan
    """

    def __init__(self, thread: DeviceThread, stage: StagePlan, code: Any) -> None:
        self._thread, self.stage, self._code = thread, stage, code
        self._loaded: Any = None

    def load(self) -> Future[None]:
        """Make it ready."""
        return self._thread.do(self._load)

    def run(self, inputs: Sequence[np.ndarray]) -> Future[Ran]:
        """Run one frame."""
        return self._thread.do(lambda runtime: self._run(runtime, inputs))

    def _load(self, runtime: DeviceRuntime) -> None:
        self._loaded = runtime.load(self.stage, self._code)

    def _run(self, runtime: DeviceRuntime, inputs: Sequence[np.ndarray]) -> Ran:
        made, seconds = runtime.timed(self._loaded, [runtime.copy_in(array) for array in inputs])
        return Ran([runtime.copy_out(tensor) for tensor in made], seconds)


def beside(work: Callable[[], Result], name: str) -> Future[Result]:
    """Let a thread of its own, called `name`, do some work that takes long and is no device's."""
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - goes to who asked
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
