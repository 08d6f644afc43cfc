"""Split gain: stages against the best unsplit way, by more than the error."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board.transfer_costs import replicas_on
from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.prediction.uncertainty import GAIN, draws, gain_share
from pipeline.split.planning.solver.solution import Solution

LEAST_SHARE = 0.8
"""Least share of draws in which a split has to gain `GAIN` to be the default."""


@dataclass(frozen=True)
class SplitGain:
    """Gain of a split over the fastest unsplit way.

    Attributes
    ----------
    choice : Solution
        The unsplit way that is preferred if the gain is too small.
    share : float
        Share of draws in which the gain is above `GAIN`, 0 to 1.
    has_draws : bool
        False if no processor's accuracy is known, so that there is only one draw.
    """

    frames_per_s: float
    unsplit_frames_per_s: float
    unsplit_latency_s: float
    unsplit_replicas: int
    choice: Solution
    share: float
    has_draws: bool

    @staticmethod
    def of(plan: Plan, unsplit: Plan, choice: Solution) -> SplitGain:
        """Return the gain of a plan over an unsplit one of its board."""
        prediction, stage = predict(unsplit), unsplit.stages[0]
        return SplitGain(
            predict(plan).frames_per_s,
            prediction.frames_per_s,
            prediction.latency_s,
            # Those that only overlap transfers are no further copies.
            stage.replicas // replicas_on(plan.board.device(stage.device)),
            choice,
            gain_share(plan, unsplit),
            len(draws(plan.board)) > 1 and not plan.measured,
        )

    @property
    def pays(self) -> bool:
        """True if a split is the default."""
        return self.share >= LEAST_SHARE

    def __str__(self) -> str:
        gain = self.frames_per_s / self.unsplit_frames_per_s if self.unsplit_frames_per_s else 1.0
        title = f"{gain:.2f} times the best unsplit way"
        if not self.has_draws:
            return f"{title} (a split is the default above {GAIN:g} times)"
        share = f"above {GAIN:g} times in {self.share:.0%} of the draws of its processors' rates"
        return f"{title}, {share} (a split is the default from {LEAST_SHARE:.0%})"


def is_split(plan: Plan) -> bool:
    """Check a plan for several stages, or devices inside of one."""
    return len(plan.stages) > 1 or bool(plan.stages[0].steps)
