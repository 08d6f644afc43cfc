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
    """Numbers of repetitions; fewer are faster and less exact."""

    turns: int = 3
    """Turns in which all groups are timed, alternately isolated and contended. The median turn counts, since what
    disturbs a machine may last for a second."""
    rounds: int = 4
    """Least frames through all groups in a turn. The median of a group's times counts: the fastest ones, added up, are
    a time that no frame ever takes."""
    turn_s: float = 0.5
    """A turn also lasts at least for so long."""
    stream_s: float = 1.0
    """Seconds that an unsplit model streams in one turn."""


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
