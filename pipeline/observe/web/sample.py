"""Sample: occasional frames with results from the passing stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pipeline.errors import FrameDropped
from pipeline.scheduler.frame import FrameFuture, FrameResult


@dataclass(frozen=True)
class Sample:
    """A frame and its outcome."""

    number: int
    inputs: Sequence[np.ndarray]
    """Copies, in the plan's order."""
    result: Mapping[str, np.ndarray] | np.ndarray | BaseException
    """Result of the frame, or its error."""
    metadata: Any = None


class Sampler:
    """Captures the next frame on request, and costs others one test.

    `last` is the newest frame that was kept and has ended.
    """

    def __init__(self) -> None:
        self.wants_frame = False
        self.last: Sample | None = None

    def __call__(self, inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        """Inspect an incoming frame; an observer of `Pipeline.observe`."""
        if self.wants_frame:
            self.wants_frame = False
            # Copied here, in the thread that submits: the caller may change its arrays afterwards.
            future.notify_at_end(partial(self._keep, [array.copy() for array in inputs]))

    def _keep(self, inputs: Sequence[np.ndarray], future: FrameFuture) -> None:
        try:
            result: FrameResult | BaseException = future.result()
        except (CancelledError, FrameDropped):
            return  # they have no result and are no failures either
        except Exception as error:  # noqa: BLE001 - it is shown
            result = error
        self.last = Sample(future.sequence, inputs, result, future.metadata)
