"""The call sequence of the original proposal: set_input, run, get_output, stop."""

from __future__ import annotations

import concurrent.futures
import threading
from abc import abstractmethod
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import InputError, PipelineClosed
from pipeline.plans import Plan
from pipeline.scheduler.copies import snapshot
from pipeline.scheduler.frame import FrameFuture

if TYPE_CHECKING:
    from pipeline.scheduler.inputs import InputCheck


class OriginalCalls:
    """Adds the four calls to `Pipeline`.

    Examples
    --------
    >>> pipeline.set_input("image", image)  # doctest: +SKIP
    >>> pipeline.run()  # doctest: +SKIP
    >>> (scores,) = pipeline.get_output(timeout=1.0)  # doctest: +SKIP
    >>> pipeline.stop()  # doctest: +SKIP
    """

    if TYPE_CHECKING:

        @property
        def _check(self) -> InputCheck:
            """What the inputs have to look like."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What new frames follow."""

    def __init__(self) -> None:
        self._values: dict[str, np.ndarray] = {}
        self._runs: SimpleQueue[FrameFuture | None] = SimpleQueue()
        self._oldest: FrameFuture | None = None
        self._reading = threading.Lock()

    @abstractmethod
    def submit(self, inputs: Any, *, timeout: float | None = None, copy: bool = True) -> FrameFuture:
        """Let a frame in."""

    @abstractmethod
    def close(self) -> None:
        """End."""

    def set_input(self, name: str, value: Any) -> None:
        """Set one input of the next `run`; it stays set for later runs until it is set again.

        Parameters
        ----------
        name : str
            Name of the input.
        value : array
            Its value; copied, so the caller may reuse its buffer.

        Raises
        ------
        InputError
            If there is no such input, or its dtype or shape differs; nothing is set then.
        """
        self._values[name] = snapshot(self._check.array(name, value))

    def run(self, *, timeout: float | None = None) -> None:
        """Let a frame of the inputs that are set enter the pipeline.

        Raises
        ------
        InputError
            If an input has never been set.
        TimeoutError, PipelineClosed
            As `submit` does.
        """
        if missing := [spec.name for spec in self.plan.inputs if spec.name not in self._values]:
            raise InputError(f"input {missing[0]!r} is not set; call set_input({missing[0]!r}, ...) before run()")
        # The values are snapshots already, but results must not share memory with the next run's inputs.
        self._runs.put(self.submit(self._values, timeout=timeout, copy=False))

    def get_output(self, *, timeout: float | None = None) -> list[np.ndarray]:
        """Wait for the oldest frame that `run` let in and return its outputs in the plan's order.

        Raises
        ------
        TimeoutError
            If it is not there within `timeout` seconds; the next call waits for the same frame.
        StageError
            If a stage failed on it; the next call waits for the next frame.
        PipelineClosed
            If the pipeline is closed and all outputs have been read.
        """
        deadline = None if timeout is None else monotonic() + timeout
        if not self._reading.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"another thread has been waiting for the output for {timeout} s")
        try:
            return self._read(deadline, timeout)
        except Empty:
            raise TimeoutError(f"no output within {timeout} s") from None
        finally:
            self._reading.release()

    def stop(self) -> None:
        """Finish what is in and close the pipeline."""
        self.close()

    def _read(self, deadline: float | None, timeout: float | None) -> list[np.ndarray]:
        while self._oldest is None:
            self._oldest = self._runs.get(timeout=_left(deadline))
            if self._oldest is None:
                self._end_of_runs()
                if self._runs.qsize() == 1:
                    raise PipelineClosed("the pipeline is closed and all outputs have been read")
        concurrent.futures.wait([self._oldest], _left(deadline))
        if not self._oldest.done():
            raise TimeoutError(f"frame {self._oldest.sequence} was not finished within {timeout} s")
        future, self._oldest = self._oldest, None
        result = future.result()
        return [result[spec.name] for spec in self.plan.outputs] if isinstance(result, Mapping) else [result]

    def _end_of_runs(self) -> None:
        self._runs.put(None)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())
