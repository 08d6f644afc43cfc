"""Admission: choice of frames to wait or be dropped at the entrance."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.core import arguments
from pipeline.errors import ArgumentError

POLICIES = ("block", "latest", "drop-oldest", "deadline")
# A newer frame is worth more than an older one, so that few wait: with "drop-oldest" the stage never runs dry.
DEFAULT_WAITING = {"latest": 1, "drop-oldest": 2, "deadline": 1}


@dataclass(frozen=True)
class Admission:
    """Policy for frames without room, fixed when a pipeline starts.

    Raises `ArgumentError` if the policy is unknown, or the options do not belong to it.
    """

    # Nothing is lost unless somebody asks for it.
    policy: str = "block"
    """``"block"``: whoever submits waits. With the others nobody waits, and frames that have not started may be
    dropped. ``"latest"``: the newest frame waits, and replaces the one that waited. ``"drop-oldest"``: frames wait in a
    line, and the oldest leaves it when it is full. ``"deadline"``: like ``"latest"``, and a frame that would be late,
    by the times measured in the stages, is not started."""
    waiting: int = 0
    """Frames that may wait, at least 1; 0 chooses 2 for ``"drop-oldest"``, else 1."""
    deadline: float = math.inf
    """Seconds from a frame's timestamp, a `time.time`, until its result is of no use any more."""

    def __post_init__(self) -> None:
        arguments.choice("admission", self.policy, POLICIES)
        waiting_count = arguments.count("waiting", self.waiting, 0)
        if waiting_count and self.policy == "block":
            raise ArgumentError(
                f"waiting is {waiting_count}; with admission='block' frames wait for as long as it takes"
            )
        deadline = arguments.duration("deadline", self.deadline)
        # Infinity stands for no deadline: any other value has to be used by the policy, and the policy needs one.
        if (self.policy == "deadline") != math.isfinite(deadline):
            raise ArgumentError(
                f"admission is {self.policy!r} and deadline is {self.deadline}; admission='deadline' needs "
                "deadline=seconds, above 0, and nothing else does"
            )

    @property
    def drops(self) -> bool:
        """True if frames are dropped instead of blocking callers."""
        return self.policy != "block"

    @property
    def most_waiting(self) -> float:
        """Upper bound on waiting frames."""
        # Callers that block are as many as there are threads: no number bounds them here.
        return (self.waiting or DEFAULT_WAITING[self.policy]) if self.drops else math.inf

    @property
    def overflow(self) -> str:
        """Reason why a frame leaves a full queue."""
        # Keys of `Statistics.dropped`, which metrics and the node of ROS 2 pass on: no text to improve.
        return "replaced" if self.most_waiting == 1 else "full"

    def is_late(self, timestamp: float, forecast: Callable[[], float]) -> bool:
        """Test if a frame started now misses its deadline after `forecast` seconds."""
        # The forecast is asked for last: it looks at every stage.
        return self.policy == "deadline" and time.time() + forecast() > timestamp + self.deadline
