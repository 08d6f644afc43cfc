"""FrameProgram: a pipeline as a function of arrays, one frame per call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import packed_value
from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineError, describe_error
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.trace import Trace, TraceEvent

_MOST_FRAMES = 4096
"""Frames with stored events. Events of a stage finishing after its frame's failure belong to nobody."""


class FrameOutcome(NamedTuple):
    """Outcome of a frame."""

    arrays: list[np.ndarray]
    """Outputs in the plan's order; none if it failed."""
    events: list[TraceEvent]
    """Events of the stages, by this process's clock."""
    error: str = ""
    """Reason for a failure; empty without one."""


class FrameEvents(Trace):
    """Events grouped by frame, collected with the frame."""

    def __init__(self) -> None:
        super().__init__(1)
        self._frames: dict[int, list[TraceEvent]] = {}

    def add(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, stage: str, frame: int, kind: str, start: float, end: float, replica: int = 0, device: str = ""
    ) -> None:
        """Note one event; safe from any thread."""
        event = TraceEvent(stage, frame, kind, start, end, replica, device)
        self._frames.setdefault(frame, []).append(event)

    def take(self, frame: int) -> list[TraceEvent]:
        """Return a frame's events, and forget them."""
        while len(self._frames) > _MOST_FRAMES:
            self._frames.pop(next(iter(self._frames)), None)
        return self._frames.pop(frame, [])


class FrameProgram:
    """Running pipeline as a function, callable from any number of threads.

    Takes the options of `Pipeline`, but for ``trace``. Raises `PipelineError` if a device cannot be opened or a stage
    not loaded.
    """

    def __init__(self, plan: Plan, codes: Sequence[Any], **options: Any) -> None:
        self._events = FrameEvents()
        self._running = Pipeline(plan, codes, trace=self._events, **options)
        self._inputs = [spec.name for spec in plan.inputs]
        # What a frame carries packed its caller unpacks, once.
        self._packed = {spec.name for spec in plan.outputs if packed_value.is_packed(spec)}

    def run(self, arrays: Sequence[np.ndarray]) -> FrameOutcome:
        """Run one frame on unchanging arrays in plan order."""
        try:
            future = self._running.submit(dict(zip(self._inputs, arrays, strict=True)), copy=False)
        except PipelineError as error:
            return FrameOutcome([], [], describe_error(error, kind=False))
        try:
            outputs = future.outputs()
        except Exception as error:  # noqa: BLE001 - it is the frame's end, and its caller's
            return FrameOutcome([], self._events.take(future.sequence), describe_error(error, kind=False))
        results = [packed_value.pack(value) if name in self._packed else value for name, value in outputs.items()]
        return FrameOutcome(results, self._events.take(future.sequence))

    def close(self) -> None:
        """End the pipeline, failing its frames."""
        self._running.close(drain=False)
