"""Member health: a pool member's record, and its next probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pipeline.errors import DeviceLost

RECENT_S = 10.0
"""Seconds for which a fault counts."""

MOST_FAULTS = 3
"""Faults within `RECENT_S` until a longer absence. Before, a member is asked again at once.

A frame that hangs counts as two.
"""

SLOWER = 10
"""Factor on the usual time from which a frame counts as hung."""

LEAST_LIMIT_S = 0.25
"""Time limit of a quick frame. A busy machine may make it wait for as long."""


class Cause(Enum):
    """Cause of an absence, with shortest and longest pause between probes."""

    AWAY = "is lost", 0.1, 2.0
    REFUSAL = "refuses, and is left out", 1.0, 10.0
    VERSION = "runs another version, and is left out", 1.0, 5.0
    FAULT = "fails", 1.0, 30.0
    HANG = "hangs", 1.0, 30.0

    @property
    def text(self) -> str:
        """End of a sentence about the member."""
        return self.value[0]


@dataclass(eq=False)
class Health:
    """Results of a member with some stages."""

    error: DeviceLost | None = None
    """Reason that it is out of the rotation; None while it is in it."""
    cause: Cause = Cause.AWAY
    """Cause of the last error."""
    usual_s: float = 0.0
    """Seconds that a frame usually takes there, 0 before the first result."""
    is_doubted: bool = False
    """True if the last frame failed there, be it the frame's fault or the member's."""
    version: str = ""
    """Checksum of the manifest of the bundle that it ran last; empty if it runs none as a whole."""
    _faults: list[float] = field(default_factory=list)
    _pause_s: float = 0.0
    _back_s: float = float("-inf")

    @property
    def is_out(self) -> bool:
        """True if the member is out of rotation."""
        return self.error is not None

    @property
    def waits(self) -> bool:
        """True if no quick return is expected: asked already, or failed often."""
        return self._pause_s > 0

    def leave(self, cause: Cause, error: DeviceLost, clock_s: float) -> float:
        """Record a departure's cause; return the seconds until its probe."""
        # Whoever has done well for long begins with a short pause again.
        if clock_s - self._back_s > RECENT_S:
            self._pause_s = 0.0
        self.error, self.cause = error, cause
        if cause in {Cause.FAULT, Cause.HANG}:
            # A single one may be the end of a session, or a hiccup; a frame that hung has held up all others.
            self._faults = [*self._recent_faults(clock_s), *[clock_s] * (2 if cause is Cause.HANG else 1)]
            if len(self._faults) < MOST_FAULTS:
                return 0.0
        return self._lengthen_pause()

    def stay_out(self, cause: Cause, error: DeviceLost) -> float:
        """Record a failed return; return the seconds until the next probe."""
        self.error, self.cause = error, cause
        return self._lengthen_pause()

    def come_back(self, clock_s: float) -> None:
        """Record the member's return to the rotation."""
        self.error, self._back_s = None, clock_s

    def count_faults(self, clock_s: float) -> int:
        """Return the number of recent faults."""
        return len(self._recent_faults(clock_s)) if self._faults else 0

    def note_time(self, seconds: float) -> None:
        """Count the time of one frame."""
        self.usual_s, self.is_doubted = follow_time(self.usual_s, seconds), False

    def _recent_faults(self, clock_s: float) -> list[float]:
        return [fault_s for fault_s in self._faults if clock_s - fault_s < RECENT_S]

    def _lengthen_pause(self) -> float:
        _, shortest, longest = self.cause.value
        self._pause_s = min(longest, max(shortest, 2 * self._pause_s))
        return self._pause_s


def follow_time(usual_s: float, seconds: float) -> float:
    """Update a frame's usual time: quick growth, slow decline."""
    return max(seconds, 0.9 * usual_s + 0.1 * seconds)


def time_limit(usual_s: float) -> float:
    """Return the seconds after which a frame counts as hung, else infinity."""
    return max(LEAST_LIMIT_S, SLOWER * usual_s) if usual_s else float("inf")
