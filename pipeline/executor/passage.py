"""Passage: one frame's way through the groups of a model, each of them timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.board import Device
from pipeline.executor import devices
from pipeline.executor.build import random_frame
from pipeline.executor.code import StageCode
from pipeline.executor.cost_cache import Made
from pipeline.plans import StagePlan, TensorSpec

MOST_BYTES = 1 << 26
"""So much is read, at most, in place of groups that are not run: what they would push out of the caches."""


@dataclass(frozen=True)
class Group:
    """A group, its key, how its outputs lie in memory, and its code where its time is not known yet."""

    key: str
    stage: StagePlan
    made: tuple[Made, ...]
    nbytes: int
    code: StageCode | None = None


class Passage:
    """One frame's way through the groups, in order as in a stage: alone, each would find all it reads in its caches.

    Each tensor goes with its last reader, so that its memory is used again, as a stage's plan of its memory would have
    it.  For groups whose time is known, others stand in: tensors of the right shape are written anew, and as much
    memory is read as they would.  It belongs to the thread that makes it.
    """

    def __init__(self, device: Device, cores: Sequence[int], groups: Sequence[Group]) -> None:
        self._runtime, self._groups = devices.create(device), groups
        self._runtime.open(cores)
        # Equal groups share their program.
        built = {group.key: group for group in groups if group.code is not None}
        self._programs = {key: self._runtime.load(each.stage, each.code) for key, each in built.items()}
        self.made: dict[str, tuple[Made, ...]] = {}
        made = {spec.name for group in groups for spec in group.stage.outputs}
        given = dict.fromkeys(spec for group in groups for spec in group.stage.inputs if spec.name not in made)
        self._given = {name: self._runtime.copy_in(array) for name, array in random_frame(list(given), 0).items()}
        self._stand_ins = _stand_ins(groups)
        self._ending = _ending([group.stage for group in groups])
        self._scratch = np.ones(MOST_BYTES // 8)

    def run(self) -> dict[int, float]:
        """Return the seconds of each group that has a program, by its number."""
        times = {}
        tensors, skipped = dict(self._given), 0
        for number, group in enumerate(self._groups):
            if group.code is None:
                skipped += group.nbytes
                continue
            times[number] = self._run(group, tensors, skipped)
            skipped = 0
            for name in self._ending[number]:
                tensors.pop(name, None)
        return times

    def close(self) -> None:
        """Give the device back."""
        self._runtime.close()

    def _run(self, group: Group, tensors: dict[str, Any], skipped: int) -> float:
        """Return the seconds of one group, whose outputs join `tensors`."""
        read = self._read(group.stage.inputs, tensors, skipped)
        made, seconds = self._runtime.timed(self._programs[group.key], read)
        tensors.update(zip((spec.name for spec in group.stage.outputs), made, strict=True))
        # Only once: what this thread does between groups, others may have to wait for.
        if group.key not in self.made:
            self.made[group.key] = tuple(
                Made(self._runtime.copy_out(tensor).shape, each.inner)
                for tensor, each in zip(made, group.made, strict=True)
            )
        return seconds

    def _read(self, inputs: Sequence[TensorSpec], tensors: dict[str, Any], skipped: int) -> list[Any]:
        """Return a group's inputs."""
        if skipped:
            self._scratch[: skipped // 8].sum()
        for spec in inputs:
            if spec.name not in tensors:
                tensors[spec.name] = self._runtime.copy_in(self._stand_ins[spec.name].copy())
        return [tensors[spec.name] for spec in inputs]


def _ending(stages: Sequence[StagePlan]) -> list[list[str]]:
    """Return for each stage the tensors that nobody reads after it."""
    last = {spec.name: number for number, stage in enumerate(stages) for spec in (*stage.outputs, *stage.inputs)}
    found: list[list[str]] = [[] for _ in stages]
    for name, number in last.items():
        found[number].append(name)
    return found


def _stand_ins(groups: Sequence[Group]) -> dict[str, np.ndarray]:
    """Return what the groups that are not run would make, as it lies in memory."""
    known = [group for group in groups if group.code is None]
    pairs = [pair for group in known for pair in zip(group.stage.outputs, group.made, strict=True)]
    return random_frame([TensorSpec(spec.name, each.shape, spec.dtype) for spec, each in pairs], 0)
