"""Admission: which frames wait at the entrance, and which are dropped there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

POLICIES = ("block", "latest", "drop-oldest", "deadline")
DEFAULT_WAITING = {"latest": 1, "drop-oldest": 2, "deadline": 1}


@dataclass(frozen=True)
class Admission:
    """What happens to a frame that finds no room; chosen once, when a pipeline starts.

    Attributes
    ----------
    policy : str
        ``"block"``: whoever submits waits.  With the others nobody waits, and frames that have not started may be
        dropped.  ``"latest"``: the newest frame waits, and replaces the one that waited.  ``"drop-oldest"``: frames
        wait in a line, and the oldest leaves it when it is full.  ``"deadline"``: like ``"latest"``, and a frame that
        would be late, by the times measured in the stages, is not started.
    waiting : int
        How many frames may wait, at least 1; 0 chooses 2 for ``"drop-oldest"``, else 1.
    deadline : float
        Seconds from a frame's timestamp, a `time.time`, until its result is of no use any more.

    Raises
    ------
    ValueError
        If the policy is unknown, or the options do not belong to it.
    """

    policy: str = "block"
    waiting: int = 0
    deadline: float = math.inf

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"admission is {self.policy!r}; it must be one of {', '.join(map(repr, POLICIES))}")
        if self.waiting < 0 or (self.waiting and self.policy == "block"):
            raise ValueError(f"waiting is {self.waiting}; it counts the frames that wait to be dropped or started")
        if (self.policy == "deadline") != math.isfinite(self.deadline) or not self.deadline > 0:
            raise ValueError("admission='deadline' needs deadline=seconds, above 0, and nothing else does")

    @property
    def drops(self) -> bool:
        """Whether frames are dropped instead of letting the caller wait."""
        return self.policy != "block"

    @property
    def line(self) -> float:
        """How many frames may wait."""
        return (self.waiting or DEFAULT_WAITING[self.policy]) if self.drops else math.inf

    @property
    def overflow(self) -> str:
        """Why a frame leaves a full line."""
        return "replaced" if self.line == 1 else "full"

    def late(self, timestamp: float, forecast: Callable[[], float]) -> bool:
        """Whether a frame of that time, should it start now and take `forecast` seconds, would miss its deadline."""
        return self.policy == "deadline" and time.time() + forecast() > timestamp + self.deadline
