"""Frame pass: one timed way of a frame through a model's groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.executor import devices
from pipeline.executor.stage_code import StageCode
from pipeline.measure.cost_cache import OutputLayout

# 64 MiB are more than the caches of most processors hold: more of it would push out nothing more.
MOST_BYTES = 1 << 26
"""Most bytes read in place of skipped groups: what they would push out of the caches."""


@dataclass(frozen=True)
class TimedGroup:
    """A group, its key, output layouts, and code if uncached."""

    key: str
    stage: StagePlan
    outputs: tuple[OutputLayout, ...]
    nbytes: int
    code: StageCode | None = None


class FramePass:
    """Way of a frame through groups in order: alone, inputs would be cached.

    Each tensor goes with its last reader, so that its memory is used again, as a stage's plan of its memory would have
    it.  In place of groups whose time is cached, tensors of the right shape are written anew, and as much
    memory is read as they would.  It belongs to the thread that makes it.
    """

    def __init__(self, device: Device, cores: Sequence[int], groups: Sequence[TimedGroup]) -> None:
        self._runtime, self._groups = devices.create(device), groups
        # Pins this thread to the cores, so that it has to be the one that runs the groups later.
        self._runtime.open(cores)
        # Equal groups share their program.
        unknown = {group.key: group for group in groups if group.code is not None}
        self._programs = {key: self._runtime.load(group.stage, group.code) for key, group in unknown.items()}
        self.outputs: dict[str, tuple[OutputLayout, ...]] = {}
        output_names = {spec.name for group in groups for spec in group.stage.outputs}
        # What no group makes are inputs of the model.
        inputs = dict.fromkeys(spec for group in groups for spec in group.stage.inputs if spec.name not in output_names)
        self._inputs = {name: self._runtime.copy_in(array) for name, array in random_frame(list(inputs), 0).items()}
        self._placeholders = _make_placeholders(groups)
        self._last_reads = _find_last_reads([group.stage for group in groups])
        # Eight bytes each. Not `zeros`: untouched pages of these may all be one page, which stays in the cache.
        self._scratch = np.ones(MOST_BYTES // 8)

    def run(self) -> dict[int, float]:
        """Return the seconds of groups with programs, by number."""
        times = {}
        tensors, skipped_bytes = dict(self._inputs), 0
        for number, group in enumerate(self._groups):
            if group.code is None:
                # They pile up until the next group that runs finds the caches as these would have left them.
                skipped_bytes += group.nbytes
                continue
            times[number] = self._run(group, tensors, skipped_bytes)
            skipped_bytes = 0
            for name in self._last_reads[number]:
                tensors.pop(name, None)
        return times

    def close(self) -> None:
        """Give the device back."""
        self._runtime.close()

    def _run(self, group: TimedGroup, tensors: dict[str, Any], skipped_bytes: int) -> float:
        """Return one group's seconds, adding its outputs to `tensors`."""
        inputs = self._read(group.stage.inputs, tensors, skipped_bytes)
        outputs, seconds = self._runtime.run_timed(self._programs[group.key], inputs)
        tensors.update(zip((spec.name for spec in group.stage.outputs), outputs, strict=True))
        # Only once: what this thread does between groups, other threads may have to wait for.
        if group.key not in self.outputs:
            self.outputs[group.key] = tuple(
                OutputLayout(self._runtime.copy_out(tensor).shape, layout.inner)
                for tensor, layout in zip(outputs, group.outputs, strict=True)
            )
        return seconds

    def _read(self, inputs: Sequence[TensorSpec], tensors: dict[str, Any], skipped_bytes: int) -> list[Any]:
        """Return a group's inputs."""
        # Groups that are not run would have pushed as much out of the caches.
        if skipped_bytes:
            self._scratch[: skipped_bytes // 8].sum()
        for spec in inputs:
            if spec.name not in tensors:
                # A new copy each time, so that it is written just before it is read, as by the group itself.
                tensors[spec.name] = self._runtime.copy_in(self._placeholders[spec.name].copy())
        return [tensors[spec.name] for spec in inputs]


def _find_last_reads(stages: Sequence[StagePlan]) -> list[list[str]]:
    """Return the tensors last read by every stage."""
    # Outputs are in it as well: what nobody reads goes with the group that makes it.
    last_positions = {
        spec.name: number for number, stage in enumerate(stages) for spec in (*stage.outputs, *stage.inputs)
    }
    names: list[list[str]] = [[] for _ in stages]
    for name, number in last_positions.items():
        names[number].append(name)
    return names


def _make_placeholders(groups: Sequence[TimedGroup]) -> dict[str, np.ndarray]:
    """Return stand-ins for skipped groups' tensors, in their memory layout."""
    cached_groups = [group for group in groups if group.code is None]
    pairs = [pair for group in cached_groups for pair in zip(group.stage.outputs, group.outputs, strict=True)]
    return random_frame([TensorSpec(spec.name, layout.shape, spec.dtype) for spec, layout in pairs], 0)
