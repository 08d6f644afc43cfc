"""StagePlan, StepPlan and TensorSpec: a stage and its tensors, immutable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions

MOST_PER_REPLICA = 32
"""Frames inside for each replica at most: one so much slower than the others is not worth waiting for."""


def frames_at_work(times: Sequence[float]) -> int:
    """Return the frames begun during the slowest replica's frame, inclusive."""
    longest = max(times)
    # Each of the others ends at most so many in that time, and has begun one more; but for the slowest, which is one.
    counts = (math.ceil(longest / seconds - 1e-9) if seconds else 1 for seconds in times)
    return min(sum(counts), MOST_PER_REPLICA * len(times))


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a tensor."""

    name: str
    """The model's own name for it."""
    shape: tuple[int, ...]
    """Extent of each dimension."""
    dtype: str = "float32"
    """NumPy's name, such as ``"float32"``."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class StepPlan:
    """Consecutive operators of a heterogeneous stage, on one device."""

    device: str
    """The stage's own one, or another one of the plan's board, which the worker borrows: one frame at a time has it, of
    all replicas and stages, the oldest first."""
    operators: tuple[str, ...]
    """Names of the first and the last operator."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    """Tensors read (of the stage, or of earlier steps), and tensors for later steps or the stage's readers."""
    seconds: float = 0.0
    """Predicted time of one frame in this step, transfers included, the mean over frames where replicas differ."""
    transfer_s: float = 0.0
    """Seconds of it spent on transfers."""
    memory_traffic: float = 0.0
    """Bytes that one frame moves there between the processor and its device's memory, copies included, 0 if unknown."""

    def scale(self, factor: float) -> StepPlan:
        """Return the step with its work multiplied by a factor."""
        return replace(self, seconds=(self.seconds - self.transfer_s) * factor + self.transfer_s)


@dataclass(frozen=True)
class StagePlan:
    """One stage: operators, device, cores, and the tensors read and written."""

    name: str
    """Unique within the plan."""
    device: str
    """Name of a device of the plan's board."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    """Tensors read (model inputs, or outputs of earlier stages), and tensors for later stages or the caller."""
    operators: tuple[str, ...] = ()
    """Names of the first and the last operator; empty when the stage is not part of a model."""
    cores: tuple[int, ...] = ()
    """Host cores that its workers and their kernels own; replicas share them out evenly, in this order."""
    seconds: float = 0.0
    """Predicted time of one frame in this stage, transfers included, the mean over frames where replicas differ; on a
    simulated device, the time it takes."""
    queue_depth: int = 2
    """Number of frames that may wait in front of it, at least 1."""
    replicas: int = 1
    """Number of workers, each on another frame, at least 1."""
    replica_devices: tuple[str, ...] = ()
    """A device for each replica, all of the kind of `device`; empty if all of them use `device`."""
    transfer_s: float = 0.0
    """Seconds of it spent on transfers; a device that overlaps computes another frame meanwhile."""
    options: StageOptions = NO_OPTIONS
    """Build options, where they differ from the other stages'."""
    replica_seconds: tuple[float, ...] = ()
    """Seconds of one frame in each replica, transfers included, where these differ; empty if all take `seconds`."""
    memory_traffic: float = 0.0
    """Bytes that one frame moves between the processor and its device's memory, copies included, 0 if unknown."""
    steps: tuple[StepPlan, ...] = ()
    """Steps of a heterogeneous stage, in order; empty if all of it runs on `device`."""
    # A comment on a choice: plans that choose the same are equal.
    cause: str = field(default="", compare=False)
    """Reason for its device, such as ``"measured fastest: 1.2 ms, gpu 3.4 ms"``; empty if nobody planned it."""

    @property
    def replica_times(self) -> tuple[float, ...]:
        """Seconds of one frame in each replica."""
        return self.replica_seconds or (self.seconds,) * self.replicas

    @property
    def mean_seconds(self) -> float:
        """Mean time of a frame over busy replicas."""
        times = self.replica_seconds
        if not times:
            return self.seconds
        return self.replicas / sum(1 / seconds for seconds in times) if min(times) else 0.0

    @property
    def frames_at_work(self) -> int:
        """Frames inside while all replicas work, waiting ones included."""
        return frames_at_work(self.replica_times)

    def share(self, replica: int) -> float:
        """Return a replica's share of the frames, counted from 0."""
        seconds = self.replica_times[replica]
        return self.mean_seconds / seconds / self.replicas if seconds else 1 / self.replicas

    @property
    def replica_names(self) -> tuple[str, ...]:
        """The device of each replica."""
        return self.replica_devices or (self.device,) * self.replicas

    def at_replica(self, replica: int) -> StagePlan:
        """Return the stage with one replica's time, counted from 0."""
        return self._with_seconds(self.replica_seconds[replica]) if self.replica_seconds else self

    def at_mean(self) -> StagePlan:
        """Return the stage with the mean time of its replicas."""
        return self._with_seconds(self.mean_seconds) if self.replica_seconds else self

    def _with_seconds(self, seconds: float) -> StagePlan:
        """Return the stage with another time. The steps on its own device take the difference."""
        own_s = sum(step.seconds - step.transfer_s for step in self.steps if step.device == self.device)
        rest_s = sum(step.seconds for step in self.steps) - own_s
        factor = max(seconds - rest_s, 0.0) / own_s if own_s > 0 else 1.0
        steps = tuple(step.scale(factor) if step.device == self.device else step for step in self.steps)
        return replace(self, seconds=seconds, steps=steps)

    def cores_of(self, replica: int) -> tuple[int, ...]:
        """Return the host cores of one replica, counted from 0."""
        # Without a rest: the plan is checked when it is made.
        share = len(self.cores) // self.replicas
        return self.cores[replica * share : (replica + 1) * share]

    @property
    def units(self) -> tuple[StagePlan, ...]:
        """Units of the build: the stage, or its steps (``stage0.step1``)."""
        if not self.steps:
            return (self,)
        return tuple(self._unit(step, f"{self.name}.step{number}") for number, step in enumerate(self.steps))

    def _unit(self, step: StepPlan, name: str) -> StagePlan:
        # Keys of the target are those of the stage's own device.
        options = self.options if step.device == self.device else replace(self.options, target=None)
        return replace(
            self,
            name=name,
            device=step.device,
            inputs=step.inputs,
            outputs=step.outputs,
            operators=step.operators,
            seconds=step.seconds,
            transfer_s=step.transfer_s,
            options=options,
            replica_devices=(),
            replica_seconds=(),
            memory_traffic=step.memory_traffic,
            steps=(),
        )
