"""Choice: one way to run a stage, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from pipeline.split.planning.problem.arrays import Array, span_sums


@dataclass(frozen=True)
class PathStep:
    """Consecutive items of a heterogeneous stage."""

    processor: int
    """Index of the one that computes them: the stage's own, or one that it borrows."""
    begin: int
    end: int
    """Items of the whole chain."""


class Paths(Protocol):
    """Where a heterogeneous stage computes its items."""

    def steps(self, begin: int, end: int) -> tuple[PathStep, ...]:
        """Return the steps of the stage on items ``[begin, end)``."""

    def step_seconds(self, step: PathStep) -> float:
        """Return a step's seconds, its start included."""

    def variants(self, choice: Choice, begin: int, end: int) -> Iterator[Choice]:
        """Yield the choice with other good paths on items ``[begin, end)``."""


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to run a stage."""

    processor: int
    """Index of the processor; for replicas on several, of that where the transfers count."""
    use: tuple[int, ...]
    """Units that it takes of each processor; none at all only where the number of stages is fixed."""
    seconds: Array
    """Time of each item for one frame on one replica; infinite where it cannot run. Shape (items,)."""
    replicas: int = 1
    threads: int = 0
    """Cores of each replica; 0 on a device without cores."""
    watts: float = 0.0
    """Power that one replica takes while it works, above rest."""
    spans: Array | None = None
    """Time of the items ``[i, j)`` as entry ``[j, i]``, where that is not the sum of their `seconds`, but never less.
    Shape (items + 1, items + 1)."""
    device: str = ""
    """Plans' name of the device with its runtime; empty for the processor's own name."""
    factors: tuple[float, ...] = ()
    """Time that each replica computes, as a multiple of `seconds`, where they are not alike. Each takes as many frames
    as it can."""
    loads: Mapping[int, Array] = field(default_factory=dict)
    """Seconds for which a frame uses a resource, by its index: of each item, shape (items,), or of the items ``[i, j)``
    as entry ``[j, i]``, shape (items + 1, items + 1)."""
    waits: Array | None = None
    """Seconds that a frame waits for resources shared by its stage's replicas, while all of them work. Shape (items +
    1, items + 1)."""
    least_waits: Array | None = None
    """The same if no two replicas want a resource at once before it is busy all the time."""
    paths: Paths | None = None
    """Paths of heterogeneous stages: the devices of their items."""
    common: Array | None = None
    """Seconds of `spans` that are the same on each of several unlike replicas: borrowed devices and moves. Shape (items
    + 1, items + 1)."""
    memories: int = 1
    """Number of equal memories that share out its replicas."""

    @cached_property
    def rate(self) -> float:
        """Frames of all replicas per frame of a factor-1 replica."""
        return sum(1 / factor for factor in self.factors) if self.factors else float(self.replicas)

    @property
    def slowest_factor(self) -> float:
        """Factor of the slowest replica."""
        return max(self.factors, default=1.0)

    def frame_interval(self, compute: Array, transfer: Array) -> Array:
        """Return the seconds between two frames over all replicas."""
        if not self.factors:
            return (compute + transfer) / self.replicas
        # Each replica at its own pace: their rates add up.  A stage that takes no time has any rate.
        with np.errstate(divide="ignore"):
            rate = sum(1 / (compute * factor + transfer) for factor in self.factors)
            return np.asarray(1 / rate)

    @cached_property
    def span_seconds(self) -> Array:
        """Seconds of items ``[i, j)`` as ``[j, i]``, once per kind of border."""
        return span_sums(self.seconds) if self.spans is None else self.spans

    @cached_property
    def span_loads(self) -> dict[int, Array]:
        """Seconds of resources on items ``[i, j)``, as ``[j, i]``."""
        return {index: load if load.ndim == 2 else span_sums(load) for index, load in self.loads.items()}

    def common_s(self, begin: int, end: int) -> float:
        """Return the seconds of items common to all replicas."""
        return 0.0 if self.common is None else float(self.common[end, begin])

    def compute_s(self, begin: int, end: int) -> float:
        """Return the seconds of items ``[begin, end)`` in any chain."""
        return float(self.seconds[begin:end].sum() if self.spans is None else self.spans[end, begin])

    def load_s(self, resource: int, begin: int, end: int) -> float:
        """Return a resource's seconds on items ``[begin, end)``."""
        load = self.loads.get(resource)
        if load is None:
            return 0.0
        return float(load[end, begin] if load.ndim == 2 else load[begin:end].sum())

    def signature(self, order: Sequence[int]) -> tuple[object, ...]:
        """Return everything a solver knows of the choice, processors reordered."""
        loads = tuple((index, load.tobytes()) for index, load in sorted(self.loads.items()))
        spans = b"" if self.spans is None else self.spans.tobytes()
        use = tuple(self.use[index] for index in order)
        common = b"" if self.common is None else self.common.tobytes()
        properties = (self.replicas, self.threads, self.watts, self.factors, loads, common, self.memories)
        # Of equal devices, the first in that order stands for all.
        first = next((position for position, count in enumerate(use) if count), order.index(self.processor))
        return first, use, self.seconds.tobytes(), spans, properties

    def merge_items(self, edges: Sequence[int]) -> Choice:
        """Return the choice for items merged at `edges`."""
        starts = list(edges[:-1])
        return replace(
            self,
            seconds=np.add.reduceat(self.seconds, starts),
            spans=None if self.spans is None else self.spans[np.ix_(edges, edges)],
            waits=None if self.waits is None else self.waits[np.ix_(edges, edges)],
            least_waits=None if self.least_waits is None else self.least_waits[np.ix_(edges, edges)],
            common=None if self.common is None else self.common[np.ix_(edges, edges)],
            loads={
                index: load[np.ix_(edges, edges)] if load.ndim == 2 else np.add.reduceat(load, starts)
                for index, load in self.loads.items()
            },
        )

    def scale_items(self, factors: Array, devices: Sequence[int] = ()) -> Choice:
        """Return the choice with items' times multiplied by factors up to 1.

        Times on shared devices are scaled as well.
        """
        spans, common = self.spans, self.common
        if spans is not None:
            saved = np.where(np.isfinite(self.seconds), self.seconds, 0.0) * (1 - factors)
            spans = spans - np.where(np.isfinite(spans), span_sums(saved), 0.0)
            common = None if common is None else np.minimum(common, spans)
        loads = {
            index: load * factors if index in devices and load.ndim == 1 else load for index, load in self.loads.items()
        }
        return replace(self, seconds=self.seconds * factors, spans=spans, common=common, loads=loads)
