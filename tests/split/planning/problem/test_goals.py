"""The objective of a plan: as it is given, or by the rate."""

from typing import Any

import numpy as np
import pytest

from pipeline.errors import PlanError
from pipeline.split.planning.problem.request import resolve_goal


@pytest.mark.parametrize(
    ("objective", "fps", "goal"),
    [
        (None, None, "throughput"),
        (None, 30, "latency"),
        # One frame in ten seconds is a rate as well.
        (None, 0.1, "latency"),
        (None, np.float32(0.5), "latency"),
        ("throughput", 30.0, "throughput"),
        ("energy", None, "energy"),
    ],
)
def test_a_rate_asks_for_the_latency(objective: str | None, fps: float | None, goal: str) -> None:
    assert resolve_goal(objective, fps) == goal


@pytest.mark.parametrize("fps", [0, 0.0, -1, np.inf, np.nan, "30", 1j])
def test_a_rate_is_above_0(fps: Any) -> None:
    with pytest.raises(PlanError, match=r"fps is .*; it must be a number above 0"):
        resolve_goal(None, fps)


@pytest.mark.parametrize("objective", ["speed", "latency "])
def test_an_unknown_objective_is_refused_with_those_there_are(objective: str) -> None:
    with pytest.raises(PlanError, match="it must be one of throughput, latency, energy"):
        resolve_goal(objective, None)
