"""Sampling: the repetitions and the seconds of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.core.numerics import Numerics
from pipeline.core.plan.stage_options import DEFAULT_PRECISION, NO_OPTIONS, StageOptions

if TYPE_CHECKING:
    from pipeline.measure.cost_cache import CostCache


@dataclass(frozen=True)
class Sampling:
    """Numbers of repetitions; fewer are faster and less exact.

    Attributes
    ----------
    turns : int
        Turns in which all groups are timed, alternately isolated and contended.  The median turn counts, since what
        disturbs a machine may last for a second.
    rounds : int
        Least frames through all groups in a turn.  The median of a group's times counts: the fastest ones, added up,
        are a time that no frame ever takes.
    turn_s : float
        A turn also lasts at least for so long.
    stream_s : float
        Seconds that an unsplit model streams in one turn.
    """

    turns: int = 3
    rounds: int = 4
    turn_s: float = 0.5
    stream_s: float = 1.0


FULL = Sampling()


@dataclass(frozen=True)
class MeasureOptions:
    """Options of all measurements of a profile."""

    cache: CostCache
    sampling: Sampling = FULL
    progress: Callable[[str], None] = lambda _: None
    stage_options: StageOptions = NO_OPTIONS

    @property
    def numerics(self) -> Numerics:
        """Numerics of the groups' builds."""
        return Numerics(DEFAULT_PRECISION).of_stage(self.stage_options)
