"""Split gain: stages against the best unsplit way, by more than the error."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board.transfer_costs import replicas_on
from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.prediction.uncertainty import GAIN, gain_share
from pipeline.split.planning.solver.solution import Solution

LEAST_SHARE = 0.8
"""Least share of draws in which a split has to gain enough to be the default."""

CORES_GAIN = 1.5
"""Gain for which cores join a device that runs the whole model alone. Free cores are worth something: they decode,
track and draw what the device finds."""


@dataclass(frozen=True)
class SplitGain:
    """Gain of a split over the fastest unsplit way."""

    frames_per_s: float
    unsplit_frames_per_s: float
    unsplit_latency_s: float
    unsplit_replicas: int
    choice: Solution
    """The unsplit way that is preferred if the gain is too small."""
    least: float
    """Gain that a split has to reach: `GAIN`, or `CORES_GAIN` if only the split keeps cores busy."""
    share: float
    """Share of draws in which the gain is above that, 0 to 1."""
    has_draws: bool
    """False if no processor's accuracy is known, so that there is only one draw."""

    @staticmethod
    def of(plan: Plan, unsplit: Plan, choice: Solution) -> SplitGain:
        """Return the gain of a plan over an unsplit one of its board."""
        prediction, stage = predict(unsplit), unsplit.stages[0]
        least = CORES_GAIN if not stage.cores and any(part.cores for part in plan.stages) else GAIN
        return SplitGain(
            predict(plan).frames_per_s,
            prediction.frames_per_s,
            prediction.latency_s,
            # Those that only overlap transfers are no further copies.
            stage.replicas // replicas_on(plan.board.device(stage.device)),
            choice,
            least,
            gain_share(plan, unsplit, least),
            any(device.accuracy for device in plan.board.devices) and not plan.measured,
        )

    @property
    def pays(self) -> bool:
        """True if a split is the default."""
        return self.share >= LEAST_SHARE

    def __str__(self) -> str:
        gain = self.frames_per_s / self.unsplit_frames_per_s if self.unsplit_frames_per_s else 1.0
        title = f"{gain:.2f} times the best unsplit way"
        if not self.has_draws:
            return f"{title} (a split is the default above {self.least:g} times)"
        share = f"above {self.least:g} times in {self.share:.0%} of the draws of its processors' rates"
        return f"{title}, {share} (a split is the default from {LEAST_SHARE:.0%})"


def is_split(plan: Plan) -> bool:
    """Check a plan for several stages, or devices inside of one."""
    return len(plan.stages) > 1 or bool(plan.stages[0].steps)
