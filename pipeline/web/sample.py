"""Sample: now and then one frame with its result, taken from the stream that goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.errors import FrameDropped
from pipeline.scheduler.frame import FrameFuture, Result


@dataclass(frozen=True)
class Sample:
    """One frame and what came of it.

    Attributes
    ----------
    number : int
        Its sequence number.
    inputs : list of ndarray
        Copies, in the plan's order.
    result : mapping of str to array, array, or exception
        Why there is none, if it failed.
    """

    number: int
    inputs: Sequence[np.ndarray]
    result: Mapping[str, np.ndarray] | np.ndarray | BaseException


class Sampler:
    """Keeps the next frame each time that one is wanted; all others pass at the price of one question.

    Attributes
    ----------
    wanted : bool
        Whether the next frame is to be kept.
    last : Sample or None
        The newest frame that was kept and has ended.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.last: Sample | None = None

    def __call__(self, inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        """Look at a frame that comes in; an observer of `Pipeline.observe`."""
        if self.wanted:
            self.wanted = False
            future.add_done_callback(partial(self._keep, [array.copy() for array in inputs]))

    def _keep(self, inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        try:
            result: Result | BaseException = future.result()
        except (CancelledError, FrameDropped):
            return  # they have no result and are no failures either
        except Exception as error:  # noqa: BLE001 - it is shown
            result = error
        self.last = Sample(future.sequence, inputs, result)
