"""Queues: how many frames may wait in front of each stage, so that no queue costs much of the frame rate.

Frames come to a queue at best at the pace of the slowest stage before it, and leave it at best at that of the slowest
one behind it.  By as much as the one is faster than the other, the number of waiting frames drifts to one end; as
stages' times vary, it strays from there as a random walk does, whose variance per frame is that of both sides' times.
For a share of the time it is at the other end, where the slower side waits for the faster one:

    cost = drift / (exp(drift * room / variance ** 2) - 1),    without a drift  variance ** 2 / room

with the standard deviation of a stage's time as a share of it for `variance`.  There is room for the frames that may
wait, and for the one that a stage works on; of several replicas, which take turns, for a share of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARIANCE = 0.1
"""Standard deviation of a stage's time, as a share of it, where nothing else is said."""

COST = 0.015
"""Share of the frame rate that one queue may cost."""

LEAST = 2
"""Also where times do not vary: whoever waits for a place, or for a frame, takes a moment to wake up."""


@dataclass(frozen=True)
class Waiting:
    """One stage, as its queue sees it.

    Attributes
    ----------
    interval : float
        Seconds between two frames.
    replicas : int
    memory : str
        Name of the memory where its frames wait.
    nbytes : float
        Of one frame that waits.
    """

    interval: float
    replicas: int = 1
    memory: str = ""
    nbytes: float = 0.0


def depths(stages: Sequence[Waiting], variance: float, room: Mapping[str, float]) -> list[int]:
    """Return the smallest depths with which no queue costs more than `COST`, or as near to them as there is room.

    Parameters
    ----------
    stages : sequence of Waiting
    variance : float
        Standard deviation of a stage's time, as a share of it.
    room : mapping of str to float
        Bytes for waiting frames, of memories of limited size.
    """
    found = [_depth(stages, number, variance) for number in range(len(stages))]
    for memory, limit in room.items():
        mine = [number for number, stage in enumerate(stages) if stage.memory == memory]
        while sum(found[each] * stages[each].nbytes for each in mine) > limit:
            longer = [each for each in mine if found[each] > 1]
            if not longer:
                break
            found[max(longer, key=lambda each: found[each] * stages[each].nbytes)] -= 1
    return found


def cost(stages: Sequence[Waiting], number: int, depth: int, variance: float) -> float:
    """Return the share of the frame rate that a stage's queue is expected to cost with some depth, 0 to 1.

    The caller, who fills the first stage's queue, is taken to be as fast as that asks for.
    """
    if number == 0 or not variance:
        return 0.0
    drift, walk = _drift(stages, number), variance**2
    room = depth + _at_work(stages, number)
    steps = drift * room / walk
    return min(1.0, walk / room if steps < 1e-6 else drift / math.expm1(min(steps, 500.0)))


def _depth(stages: Sequence[Waiting], number: int, variance: float) -> int:
    """Return the smallest depth that costs at most `COST`."""
    if number == 0 or not variance:
        return LEAST
    drift, walk = _drift(stages, number), variance**2
    room = walk / COST if drift < 1e-6 else walk / drift * math.log1p(drift / COST)
    return max(LEAST, math.ceil(room - _at_work(stages, number)))


def _drift(stages: Sequence[Waiting], number: int) -> float:
    """Return by how much the faster side of a queue is faster."""
    before, behind = (max(stage.interval for stage in side) for side in (stages[:number], stages[number:]))
    # A side that takes no time is as good as endlessly faster.
    return max(before, behind) / max(min(before, behind), 1e-9 * max(before, behind), 1e-300) - 1


def _at_work(stages: Sequence[Waiting], number: int) -> float:
    return 1 / max(stages[number - 1].replicas, stages[number].replicas)
