"""Problem: a chain of items, the places that can work on them, and what moving on costs, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """Where stages run: cores that are alike, or one device.

    Attributes
    ----------
    name : str
    units : int
        How much of it there is to give away: cores; stages on a device without cores.
    shares : bool
        Whether its stages take turns, so that their times add up; otherwise each stage has its units for itself.
    overlaps : bool
        Whether it computes while it brings tensors in and out.
    """

    name: str
    units: int = 1
    shares: bool = False
    overlaps: bool = False


@dataclass(frozen=True, eq=False)
class Choice:
    """One way to run a stage.

    Attributes
    ----------
    place : int
        Number of the place; for replicas on several, of that where the transfers count.
    use : tuple of int
        Units that it takes of each place.
    seconds : array of float, shape (items,)
        Time of each item for one frame on one replica; infinite where it cannot run.  For unlike replicas the
        harmonic mean, so that divided by `replicas` it is the time between two frames.
    replicas : int
    threads : int
        Cores of each replica; 0 on a device without cores.
    watts : float
        Power that one replica takes while it works, above rest.
    """

    place: int
    use: tuple[int, ...]
    seconds: Array
    replicas: int = 1
    threads: int = 0
    watts: float = 0.0


@dataclass(frozen=True, eq=False)
class Memory:
    """A memory of limited size.

    A stage of the items ``[i, j)`` needs ``replicas * (parameters[i:j].sum() + working[i:j].max()) + waiting[i]``.

    Attributes
    ----------
    limit : float
        Its size in bytes.
    places : tuple of int
        Places whose stages live in it.
    """

    limit: float
    places: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be divided, among what.

    Attributes
    ----------
    places : tuple of Place
    choices : tuple of Choice
    enter : array of float, shape (places + 1, places, items + 1)
        Seconds that a stage on the second place spends to bring in what crosses at each position, made on the first;
        the last "place" is the caller.  Infinite where there is no way.
    leave : array of float, shape (places, places + 1, items + 1)
        Seconds that a stage on the first place spends to hand it to the second.
    memories : tuple of Memory
    parameters, working : array of float, shape (items,)
        Bytes of each item's constants, and of all tensors that are alive while it runs.
    waiting : array of float, shape (items + 1,)
        Bytes of the frames that wait in front of a stage which begins at each position.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a number is negative or not a number.
    """

    places: tuple[Place, ...]
    choices: tuple[Choice, ...]
    enter: Array
    leave: Array
    memories: tuple[Memory, ...] = ()
    parameters: Array | None = None
    working: Array | None = None
    waiting: Array | None = None

    def __post_init__(self) -> None:
        places, items = len(self.places), self.items
        shapes = {"enter": (places + 1, places, items + 1), "leave": (places, places + 1, items + 1)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has the shape {getattr(self, name).shape}, not {shape}")
        for choice in self.choices:
            if len(choice.seconds) != items or len(choice.use) != places or not any(choice.use):
                raise ValueError(f"choice {choice} does not fit {items} items on {places} places")
        if not all(np.all(each >= 0) for each in (self.enter, self.leave, *(one.seconds for one in self.choices))):
            raise ValueError("times must be numbers of at least 0")

    @property
    def items(self) -> int:
        """How many items the chain has."""
        return len(self.choices[0].seconds) if self.choices else 0

    def merged(self, positions: Sequence[int]) -> Problem:
        """Return the problem in which stages begin and end at `positions` only; these include both ends."""
        starts, at = list(positions[:-1]), list(positions)
        return replace(
            self,
            choices=tuple(replace(each, seconds=np.add.reduceat(each.seconds, starts)) for each in self.choices),
            enter=self.enter[:, :, at],
            leave=self.leave[:, :, at],
            parameters=None if self.parameters is None else np.add.reduceat(self.parameters, starts),
            working=None if self.working is None else np.maximum.reduceat(self.working, starts),
            waiting=None if self.waiting is None else self.waiting[at],
        )

    def spread(self, count: int) -> list[int]:
        """Return at most about `count` positions that divide the chain's work evenly; all of them if they are few."""
        if self.items <= count:
            return list(range(self.items + 1))
        work = np.min([choice.seconds / choice.replicas for choice in self.choices], axis=0)
        done = np.concatenate([[0.0], np.cumsum(np.where(np.isfinite(work), work, 0.0))])
        steps = np.searchsorted(done, np.linspace(0, done[-1], count + 1)[1:-1])
        return sorted({0, *(int(step) for step in steps), self.items})

    def times(self, choice: Choice, enter: Array, leave: Array) -> Array:
        """Return the seconds between two frames of the stage on items ``[i, j)``, as entry ``[j, i]``.

        Infinite where it is empty, cannot run, or does not fit into its memory.
        """
        compute = spans(choice.seconds)
        moved = np.add.outer(leave, enter)
        whole = overlapped(compute, moved) if self.places[choice.place].overlaps else compute + moved
        for memory in self.memories:
            if choice.place in memory.places:
                whole[self.bytes(choice) > memory.limit] = np.inf
        return whole / choice.replicas

    def delays(self, choice: Choice, enter: Array, leave: Array) -> Array:
        """Return the seconds that one frame spends in the stage on items ``[i, j)``, as entry ``[j, i]``."""
        found: Array = spans(choice.seconds) + np.add.outer(leave, enter)
        return found

    def bytes(self, choice: Choice) -> Array:
        """Return the bytes that the stage on items ``[i, j)`` keeps in its memory, as entry ``[j, i]``."""
        parameters, working, waiting = (
            np.zeros(size) if given is None else given
            for given, size in (
                (self.parameters, self.items),
                (self.working, self.items),
                (self.waiting, self.items + 1),
            )
        )
        return choice.replicas * (spans(parameters) + largest(working)) + waiting[None, :]


def overlapped(compute: Array, moved: Array) -> Array:
    """Return the time between two frames where one is computed while the tensors of another one move."""
    found: Array = np.maximum(compute, (compute + moved) / 2)
    return found


def spans(values: Array) -> Array:
    """Return the sums of ``values[i:j]`` as entry ``[j, i]``; infinite for an empty span or one with an infinity."""
    bad = np.concatenate([[0], np.cumsum(np.isinf(values))])
    prefix = np.concatenate([[0.0], np.cumsum(np.where(np.isinf(values), 0.0, values))])
    sums: Array = np.subtract.outer(prefix, prefix)
    sums[np.subtract.outer(bad, bad) != 0] = np.inf
    sums[np.triu_indices(len(prefix))] = np.inf
    return sums


def largest(values: Array) -> Array:
    """Return the largest of ``values[i:j]`` as entry ``[j, i]``; 0 for an empty span."""
    size = len(values) + 1
    found = np.zeros((size, size))
    for end in range(1, size):
        found[end, :end] = np.maximum(found[end - 1, :end], values[end - 1])
    return found
