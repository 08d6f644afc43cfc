"""Plan, StagePlan and TensorSpec: what is to be built and streamed, as immutable values.

A plan is checked when it is made, so that nothing later meets an impossible one, and its JSON form is
exactly its fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pipeline.board import Board
from pipeline.errors import PipelineError, PlanError
from pipeline.files import write_atomically
from pipeline.rules import check

FORMAT = 1


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of a tensor.

    Attributes
    ----------
    name : str
        The model's own name for it.
    shape : tuple of int
        Extent of each dimension.
    dtype : str
        NumPy's name, such as ``"float32"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class StagePlan:
    """One stage: which operators, on which device and cores, reading and writing which tensors.

    Attributes
    ----------
    name : str
        Unique within the plan.
    device : str
        Name of a device of the plan's board.
    inputs, outputs : tuple of TensorSpec
        What it reads (model inputs, or outputs of earlier stages) and what later stages or the caller read.
    operators : tuple of str
        Names of the first and the last operator; empty when the stage is not part of a model.
    cores : tuple of int
        Host cores that its workers and their kernels own; replicas share them out evenly, in this order.
    seconds : float
        Predicted time of one frame in this stage, transfers included; on a simulated device, the time it takes.
    moving : float
        How much of it is spent on transfers; a device that overlaps computes another frame meanwhile.
    queue_depth : int
        How many frames may wait in front of it, at least 1.
    replicas : int
        How many workers run it, each on another frame, at least 1.
    replica_devices : tuple of str
        A device for each replica, all of the kind of `device`; empty if all of them use `device`.
    """

    name: str
    device: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    seconds: float = 0.0
    queue_depth: int = 2
    replicas: int = 1
    replica_devices: tuple[str, ...] = ()
    moving: float = 0.0

    @property
    def replica_names(self) -> tuple[str, ...]:
        """The device of each replica."""
        return self.replica_devices or (self.device,) * self.replicas

    def cores_of(self, replica: int) -> tuple[int, ...]:
        """Return the host cores of one replica, counted from 0."""
        share = len(self.cores) // self.replicas
        return self.cores[replica * share : (replica + 1) * share]


@dataclass(frozen=True)
class Plan:
    """An ordered set of stages on a board.

    Attributes
    ----------
    model : str
        Name of the model.
    digest : str
        SHA-256 of the graph that the operators' names belong to; empty when there is no model.
    board : Board
        The devices in use.
    inputs, outputs : tuple of TensorSpec
        Of the whole pipeline.
    stages : tuple of StagePlan
        In order: a stage reads model inputs and outputs of earlier stages only.
    in_flight : int
        How many frames may be inside at once; 0 chooses one per replica of each stage and one per place in its queue.
    unsplit_seconds : float
        Predicted time of one frame in the unsplit model on one core of the first stage's device.
    measured : bool
        Whether the predicted times rest on measurements (True) or on estimates (False).

    Raises
    ------
    PlanError
        If the stages do not form a legal pipeline; the message names the stage and the tensor.
    """

    model: str
    digest: str
    board: Board
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    stages: tuple[StagePlan, ...]
    in_flight: int = 0
    unsplit_seconds: float = 0.0
    measured: bool = False
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise PlanError(f"the plan has format {self.format}, but this version reads format {FORMAT}")
        check(self)

    @property
    def frames_in_flight(self) -> int:
        """The bound on frames inside, with the default filled in."""
        return self.in_flight or sum(stage.replicas + stage.queue_depth for stage in self.stages)

    @property
    def slowest(self) -> float:
        """Predicted seconds between two frames: of the slowest stage, or of the core with the most work."""
        cores = {core for stage in self.stages for core in stage.cores}
        loads = [sum(stage.seconds for stage in self.stages if stage.cores == (core,)) for core in cores]
        return max([*map(self.interval, self.stages), *loads])

    def interval(self, stage: StagePlan) -> float:
        """Return the predicted seconds between two frames of a stage alone."""
        all_at_once = stage.seconds / stage.replicas
        if not self.board.device(stage.device).overlaps:
            return all_at_once
        # Each device computes one frame at a time, while its other replicas move theirs.
        return max(all_at_once, (stage.seconds - stage.moving) / len(set(stage.replica_names)))

    @property
    def speedup(self) -> float:
        """Predicted frames per second over those of the unsplit model on one core; 0 if unknown."""
        return self.unsplit_seconds / self.slowest if self.slowest else 0.0

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON; an existing file is replaced only once the new one is complete.

        Raises
        ------
        PlanError
            If the file cannot be written.
        """
        try:
            write_atomically(Path(path), encode(self))
        except OSError as error:
            raise PlanError(f"cannot write plan {str(path)!r}: {error.strerror}") from error

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan that `save` wrote.

        Raises
        ------
        PlanError
            If the file is missing, not a plan, of a newer format, or describes an impossible plan.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise PlanError(
                f"cannot read plan {str(path)!r}: {error.strerror}; make one with 'soc-pipeline plan'"
            ) from None
        return decode(data, str(path))


def encode(plan: Plan) -> bytes:
    """Return the plan as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def decode(data: bytes, origin: str) -> Plan:
    """Return the plan written in `data`; `origin` is what errors call it."""
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version != FORMAT:
            raise PlanError(
                f"{origin}: plan format {version}, but this version reads format {FORMAT}; "
                "use the release that wrote it, or plan again"
            )
        plan = msgspec.json.decode(data, type=Plan)
        if unknown := _unknown(msgspec.json.decode(data), msgspec.to_builtins(plan)):
            raise PlanError(f"{origin}: unknown field {unknown[0]!r}; correct or remove it")
    except msgspec.MsgspecError as error:
        # Errors of the plan's own checks arrive wrapped.
        reason = error.__cause__ if isinstance(error.__cause__, PipelineError) else error
        raise PlanError(f"{origin}: not a plan: {reason}; make one with 'soc-pipeline plan'") from None
    return plan


def _unknown(written: Any, understood: Any, where: str = "") -> list[str]:
    """Return the fields that were written but not understood, such as one with a misspelt name."""
    if isinstance(written, dict):
        found = [f"{where}{name}" for name in written if name not in understood]
        pairs = [(f"{where}{name}.", name) for name in written if name in understood]
    elif isinstance(written, list):
        found, pairs = [], [(f"{where}{number}.", number) for number in range(len(written))]
    else:
        return []
    return found + [each for path, key in pairs for each in _unknown(written[key], understood[key], path)]


class _Version(msgspec.Struct):
    format: int = 0
