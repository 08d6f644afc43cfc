"""Durations: how long each frame takes in each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.plans import Plan


def durations(
    plan: Plan, frames: int, variance: float, samples: Mapping[str, Sequence[float]], seed: int
) -> list[np.ndarray]:
    """Return for each stage the seconds of each frame.

    What a frame draws does not depend on the order of events, so that two plans can be compared on equal frames.
    """
    found = []
    for number, stage in enumerate(plan.stages):
        generator = np.random.default_rng([seed, number])
        if stage.name in samples:
            found.append(generator.choice(np.asarray(samples[stage.name], np.float64), frames))
            continue
        sigma = np.sqrt(np.log1p(variance**2))
        found.append(stage.seconds * generator.lognormal(-(sigma**2) / 2, sigma, frames))
    return found
