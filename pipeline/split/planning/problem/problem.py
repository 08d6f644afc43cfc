"""Problem: a chain of items, processors and transfers as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from pipeline.split.planning.problem.arrays import Array, span_maxima, span_sums
from pipeline.split.planning.problem.choice import Choice


@dataclass(frozen=True)
class Processor:
    """A cluster of equal cores, or one device."""

    name: str
    units: int = 1
    """Units to give away: cores; stages on a device without cores."""
    overlaps: bool = False
    """True if it computes while it brings tensors in and out."""


@dataclass(frozen=True)
class Resource:
    """Shared resource, used one at a time: stages' seconds add up."""

    name: str
    kind: str = "device"
    """``"device"`` on which stages take turns, or which they borrow; ``"link"``; or ``"memory"``, whose bytes per
    second they share."""


@dataclass(frozen=True, eq=False)
class MemoryLimit:
    """A memory of limited size.

    A stage of the items ``[i, j)`` needs
    ``replicas * (parameters[i:j].sum() + workspace[i:j].max()) + queue_bytes[i]``.
    """

    nbytes: float
    processors: tuple[int, ...]
    """Processors whose stages live in it."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A chain of items to be divided among processors.

    Raises `ValueError` if the shapes do not fit, or a number is negative or not a number.
    """

    processors: tuple[Processor, ...]
    choices: tuple[Choice, ...]
    enter: Array
    """Seconds that a stage on the second processor spends to bring in what crosses at each position, made on the first;
    the last "processor" is the caller. Infinite where there is no way."""
    leave: Array
    """Seconds that a stage on the first processor spends to hand it to the second."""
    memories: tuple[MemoryLimit, ...] = ()
    parameters: Array | None = None
    workspace: Array | None = None
    """Bytes of each item's constants, and of all tensors that are alive while it runs."""
    queue_bytes: Array | None = None
    """Bytes of the frames that wait in front of a stage which begins at each position."""
    stages: tuple[tuple[int, ...], ...] = ()
    """Processors that may run each stage, which fixes their number; empty for any number anywhere."""
    runtimes: tuple[frozenset[str], ...] = ()
    """Names of devices with their runtimes that the choice of each of these stages may have; empty for any."""
    resources: tuple[Resource, ...] = ()
    """Resources that stages share; in the time between two frames, each is used for one frame by all stages together.
    """
    enter_loads: Mapping[int, Array] = field(default_factory=dict)
    leave_loads: Mapping[int, Array] = field(default_factory=dict)
    """Seconds of `enter` and `leave` for which a border uses a resource, by its index; of the same shapes."""
    hop_s: float = 0.0
    """Seconds of each stage to hand a frame on, besides `leave`; they take no energy."""

    def __post_init__(self) -> None:
        count, items = len(self.processors), self.items
        shapes = {"enter": (count + 1, count, items + 1), "leave": (count, count + 1, items + 1)}
        for name, shape in shapes.items():
            for values in (getattr(self, name), *getattr(self, f"{name}_loads").values()):
                if values.shape != shape:
                    raise ValueError(f"{name} has the shape {values.shape}, not {shape}")
        used = {*self.enter_loads, *self.leave_loads, *(index for choice in self.choices for index in choice.loads)}
        if not used <= set(range(len(self.resources))):
            raise ValueError(f"there are {len(self.resources)} resources, but loads of {sorted(used)}")
        for choice in self.choices:
            # Without a fixed number of stages, only the units in use bound how many the search tries.
            finite = any(choice.use) or self.stages
            spans_fit = choice.spans is None or choice.spans.shape == (items + 1, items + 1)
            loads_fit = all(load.shape in {(items,), (items + 1, items + 1)} for load in choice.loads.values())
            factors_fit = not choice.factors or len(choice.factors) == choice.replicas
            if len(choice.seconds) != items or len(choice.use) != count or not (finite and spans_fit and loads_fit):
                raise ValueError(f"choice {choice} does not fit {items} items on {count} processors")
            if not factors_fit:
                raise ValueError(f"choice {choice} does not fit {items} items on {count} processors")
        if not all(
            np.all(array >= 0) for array in (self.enter, self.leave, *(choice.seconds for choice in self.choices))
        ):
            raise ValueError("times must be numbers of at least 0")

    @property
    def items(self) -> int:
        """Length of the chain."""
        return len(self.choices[0].seconds) if self.choices else 0

    def stage_processors(self, stage: int) -> Sequence[int]:
        """Return the possible processors of a stage, counted from 0."""
        if not self.stages:
            return range(len(self.processors))
        return self.stages[stage] if stage < len(self.stages) else ()

    def allows(self, stage: int, choice: Choice) -> bool:
        """Check a choice for a stage, counted from 0, against the request."""
        names = self.runtimes[stage] if 0 <= stage < len(self.runtimes) else ()
        return not names or not choice.device or choice.device in names

    @cached_property
    def twins(self) -> list[tuple[int, int]]:
        """Interchangeable neighbouring processors; the first is used first."""
        # Where stages are fixed, so is which of the two a stage may run on.
        pairs = () if self.stages else pairwise(range(len(self.processors)))
        return [pair for pair in pairs if self._signature() == self._signature(*pair)]

    def _signature(self, *pair: int) -> tuple[object, ...]:
        """Return the problem's data with two processors exchanged."""
        order = list(range(len(self.processors)))
        if pair:
            order[pair[0]], order[pair[1]] = pair[::-1]
        ends = [*order, len(order)]
        borders = (
            *(values[np.ix_(ends, order)].tobytes() for values in (self.enter, *self.enter_loads.values())),
            *(values[np.ix_(order, ends)].tobytes() for values in (self.leave, *self.leave_loads.values())),
        )
        processors = tuple((self.processors[index].units, self.processors[index].overlaps) for index in order)
        memories = [(memory.nbytes, sorted(map(order.index, memory.processors))) for memory in self.memories]
        return processors, borders, sorted(memories), sorted(choice.signature(order) for choice in self.choices)

    def merge_items(self, positions: Sequence[int]) -> Problem:
        """Return the problem with borders at `positions` only, ends included."""
        starts, edges = list(positions[:-1]), list(positions)
        return replace(
            self,
            choices=tuple(choice.merge_items(edges) for choice in self.choices),
            enter=self.enter[:, :, edges],
            leave=self.leave[:, :, edges],
            enter_loads={index: load[:, :, edges] for index, load in self.enter_loads.items()},
            leave_loads={index: load[:, :, edges] for index, load in self.leave_loads.items()},
            parameters=None if self.parameters is None else np.add.reduceat(self.parameters, starts),
            workspace=None if self.workspace is None else np.maximum.reduceat(self.workspace, starts),
            queue_bytes=None if self.queue_bytes is None else self.queue_bytes[edges],
        )

    def scale_items(self, factors: Array) -> Problem:
        """Return the problem with items' times scaled by up to 1."""
        # A faster kernel moves as many bytes.
        devices = [index for index, resource in enumerate(self.resources) if resource.kind == "device"]
        return replace(self, choices=tuple(choice.scale_items(factors, devices) for choice in self.choices))

    def spread_positions(self, count: int) -> list[int]:
        """Return about `count` positions of evenly divided work.

        Among near positions it takes the one with the least to cross.
        """
        # Also what a chain of moderate length needs to be solved exactly.
        if self.items <= count:
            return list(range(self.items + 1))
        work = np.min([choice.seconds / choice.rate for choice in self.choices], axis=0)
        work = np.where(np.isfinite(work), work, 0.0)
        # Half of the positions by work, half by number: a heavy item would otherwise take those of all light ones.
        progress = np.concatenate([[0.0], np.cumsum(work + max(work.mean(), 1e-300))])
        section = np.floor(progress[1:-1] / progress[-1] * (count - 1))
        border_seconds = sum(np.where(np.isfinite(rows), rows, 0.0).sum((0, 1)) for rows in (self.enter, self.leave))
        # Sorted by section, and within it by what crosses: the first of each section is the cheapest.
        order = np.lexsort((np.asarray(border_seconds)[1:-1], section))
        _, cheapest = np.unique(section[order], return_index=True)
        return [0, *(order[cheapest] + 1).tolist(), self.items]

    def intervals(self, choice: Choice, enter: Array, leave: Array) -> Array:
        """Return the intervals of stages on items ``[i, j)``, as ``[j, i]``.

        An interval is infinite where the span is empty, cannot run, or does not fit into its memory.
        """
        compute, transfer = _split_times(choice, enter, leave)
        if choice.waits is not None:
            transfer += choice.waits
        if self.processors[choice.processor].overlaps:
            seconds = overlap_seconds(compute, transfer) / choice.replicas
        else:
            seconds = choice.frame_interval(compute, transfer)
        for memory in self.memories:
            if choice.processor in memory.processors and memory.nbytes < self.most_bytes:
                seconds[self.memory_bytes(choice) > memory.nbytes] = np.inf
        return seconds

    def latencies(self, choice: Choice, enter: Array, leave: Array) -> Array:
        """Return the latencies of stages on items ``[i, j)``, as ``[j, i]``."""
        # In the slowest replica: those behind its frame wait for it, since results leave in order.
        compute, transfer = _split_times(choice, enter, leave)
        seconds: Array = compute * choice.slowest_factor + transfer
        return seconds

    def busy_seconds(self, choice: Choice, enter: Array, leave: Array) -> Array:
        """Return the mean busy seconds of stages, as ``[j, i]``."""
        return choice.frame_interval(*_split_times(choice, enter, leave - self.hop_s)) * choice.replicas

    def memory_bytes(self, choice: Choice) -> Array:
        """Return the bytes of stages on items ``[i, j)``, as ``[j, i]``."""
        queue_bytes = np.zeros(self.items + 1) if self.queue_bytes is None else self.queue_bytes
        return choice.replicas / choice.memories * self._span_footprints + queue_bytes[None, :]

    @cached_property
    def most_bytes(self) -> float:
        """Bound on the bytes of all stages together."""
        parameters, workspace, queue_bytes = (
            np.zeros(1) if values is None else values for values in (self.parameters, self.workspace, self.queue_bytes)
        )
        replicas = max(choice.replicas for choice in self.choices)
        stages = len(self.stages) or min(self.items, sum(processor.units for processor in self.processors))
        largest_stage = replicas * float(workspace.max()) + float(queue_bytes.max())
        return replicas * float(parameters.sum()) + stages * largest_stage

    @cached_property
    def _span_footprints(self) -> Array:
        """Bytes of a replica on items ``[i, j)``, as ``[j, i]``."""
        parameters, workspace = (
            np.zeros(self.items) if values is None else values for values in (self.parameters, self.workspace)
        )
        return span_sums(parameters) + span_maxima(workspace)


def _split_times(choice: Choice, enter: Array, leave: Array) -> tuple[Array, Array]:
    """Return replicas' own seconds and common seconds, as ``[j, i]``."""
    compute, transfer = choice.span_seconds, np.add.outer(leave, enter)
    if choice.common is None:
        return compute, transfer
    return compute - choice.common, transfer + choice.common


def overlap_seconds(compute: Array, transfer: Array) -> Array:
    """Return the interval of computing overlapped with another frame's transfers."""
    # Two replicas take turns at computing; each needs its own time for one frame, and there are two of them.
    seconds: Array = np.maximum(compute, (compute + transfer) / 2)
    return seconds
