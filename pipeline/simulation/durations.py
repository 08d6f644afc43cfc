"""Durations: the seconds of each frame in each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.core.plan.plan import Plan


def draw_durations(
    plan: Plan, frames: int, cv: float, samples: Mapping[str, Sequence[float]], seed: int
) -> list[list[np.ndarray]]:
    """Return the seconds per frame for every stage and replica.

    The draws of a frame do not depend on the order of events, so that two plans can be compared on equal frames.
    """
    stage_seconds = []
    for number, stage in enumerate(plan.stages):
        # A generator of its own, so that a stage with samples does not shift what the next one draws.
        generator = np.random.default_rng([seed, number])
        if stage.name in samples:
            # Drawn with replacement and independently: what was slow twice in a row on the board is not so here.
            # What was measured has the differences between replicas in it.
            drawn = generator.choice(np.asarray(samples[stage.name], np.float64), frames)
            stage_seconds.append([drawn] * stage.replicas)
            continue
        # Parameters of the logarithm that give the distribution the mean 1 and the coefficient of variation `cv`.
        sigma = np.sqrt(np.log1p(cv**2))
        factors = generator.lognormal(-(sigma**2) / 2, sigma, frames)
        # A frame that is slow is so in whichever replica.
        stage_seconds.append([seconds * factors for seconds in stage.replica_times])
    return stage_seconds
