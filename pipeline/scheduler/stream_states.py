"""Stream states: values of a stream's frame for its next one, where stages keep state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.executor.devices.base import DeviceRuntime

MOST_STREAMS = 1024
"""Upper bound on streams with state. Beyond it, the one without frames for longest begins anew."""


class StreamRun:
    """Frames of a stream since its beginning, all in one deployment.

    The latest frame's number is -1 without any. `values` are the number of the frame that computed them, and the
    tensors, by worker.
    """

    def __init__(self, deployment: object) -> None:
        self.deployment, self.latest = deployment, -1
        # Weak: tensors of a device that was given up go with its worker.
        self.values: WeakKeyDictionary[StageState, tuple[int, Sequence[Any]]] = WeakKeyDictionary()


class StreamTurn(NamedTuple):
    """A frame's place in its stream."""

    run: StreamRun
    # Numbers of the frame and of the stream's one before, -1 without one.
    number: int
    previous: int


class Streams:
    """Streams that have state; the ledger's lock guards them."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, StreamRun] = OrderedDict()

    def follow(self, stream: str, number: int, deployment: object) -> StreamTurn:
        """Return the place of a stream's next frame."""
        run = self._runs.get(stream)
        if run is None or run.deployment is not deployment:
            run = self._runs[stream] = StreamRun(deployment)
        self._runs.move_to_end(stream)
        if len(self._runs) > MOST_STREAMS:
            self._runs.popitem(last=False)
        turn = StreamTurn(run, number, run.latest)
        run.latest = number
        return turn

    def forget(self, stream: str | None) -> None:
        """Let a stream, or all with None, begin anew."""
        # Frames on their way keep what they need of it.
        if stream is None:
            self._runs.clear()
        else:
            self._runs.pop(stream, None)


class KeptTensor(NamedTuple):
    """A tensor that a stage keeps."""

    input: int
    output: int
    """Positions among the stage's inputs and outputs."""
    first: np.ndarray
    """Value in a stream's first frame."""
    is_shared: bool
    """True if the caller gets it, too, and may write into it."""


def stage_state(plan: Plan, stage: StagePlan) -> tuple[KeptTensor, ...]:
    """Return what a stage of a plan keeps."""
    inputs, outputs, results = ([spec.name for spec in specs] for specs in (stage.inputs, stage.outputs, plan.outputs))
    return tuple(
        KeptTensor(
            inputs.index(kept.input.name), outputs.index(kept.output), kept.first_value(), kept.output in results
        )
        for kept in plan.states
        if kept.output in outputs
    )


class StageState:
    """State of the streams on one worker's device, from frame to frame, for its thread.

    A frame that has not come this far, for whatever reason, is a gap: the frame behind it begins anew.
    """

    def __init__(self, runtime: DeviceRuntime, tensors: Sequence[KeptTensor]) -> None:
        self._runtime, self._tensors = runtime, tensors

    def fill(self, turn: StreamTurn | None, inputs: list[Any]) -> None:
        """Set the stage's inputs to the state before a frame."""
        number, values = (-1, ()) if turn is None else turn.run.values.get(self, (-1, ()))
        if turn is None or turn.previous < 0 or number != turn.previous:
            values = [self._runtime.copy_in(tensor.first) for tensor in self._tensors]
        for tensor, value in zip(self._tensors, values, strict=True):
            inputs[tensor.input] = value

    def keep(self, turn: StreamTurn | None, outputs: Sequence[Any]) -> None:
        """Keep the state behind a frame."""
        if turn is not None:
            turn.run.values[self] = turn.number, [self._kept(tensor, outputs) for tensor in self._tensors]

    def _kept(self, tensor: KeptTensor, outputs: Sequence[Any]) -> Any:
        value = outputs[tensor.output]
        return self._runtime.copy_in(self._runtime.copy_out(value).copy()) if tensor.is_shared else value
