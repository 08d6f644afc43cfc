"""Arrivals: frame times, even, random, or recorded, and the seconds of each frame in each stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.system.files import check_regular

EVEN, POISSON = "even", "poisson"

DEFAULT_FRAMES = 1000
"""Frames of a stream whose arrivals were not recorded."""


def arrival_times(
    arrivals: str | Sequence[float], frames: int | None, fps: float | None, seed: int
) -> tuple[int, np.ndarray | None]:
    """Return count and times of arriving frames, None for arrival on demand.

    Raises `PlanError` if the arrivals are none, do not fit `frames` or `fps`, or a recorded time is before the one in
    front of it.
    """
    if not isinstance(arrivals, str):
        return _recorded_times(arrivals, frames, fps)
    count = DEFAULT_FRAMES if frames is None else frames
    if arrivals == EVEN:
        # Computed from the number, not summed up: no rounding error grows with the frames.
        return count, None if fps is None else np.arange(count) / fps
    if arrivals != POISSON:
        raise PlanError(f"arrivals are {arrivals!r}; they are {EVEN!r}, {POISSON!r}, or a sequence of seconds")
    if fps is None:
        raise PlanError(f"arrivals are {POISSON!r}, which needs a rate; say with fps how many come per second")
    # A third number, which stages do not have: no stage draws the same.
    gaps = np.random.default_rng([seed, 0, 1]).exponential(1 / fps, count)
    return count, np.cumsum(gaps) - gaps[:1]


def _recorded_times(arrivals: Sequence[float], frames: int | None, fps: float | None) -> tuple[int, np.ndarray]:
    times = np.asarray(arrivals, np.float64)
    if fps is not None:
        raise PlanError("the arrivals are recorded, so that fps changes nothing; give one of the two")
    if frames is not None and frames > len(times):
        raise PlanError(f"{frames} frames, but the arrivals of {len(times)} are recorded; ask for at most as many")
    if not np.isfinite(times).all():
        raise PlanError("an arrival is no finite number of seconds")
    early = np.flatnonzero(np.diff(times) < 0)
    if len(early):
        later, earlier = times[early[0]], times[early[0] + 1]
        raise PlanError(f"arrival {early[0] + 1} is at {earlier:g} s, before the one in front of it, at {later:g} s")
    count = len(times) if frames is None else frames
    # Clocks of recordings begin in 1970, or when a camera was switched on.
    return count, times[:count] - times[:1]


def read_arrivals(path: str) -> list[float]:
    """Read times in seconds from lines or a CSV file's first column.

    Raises `PlanError` if it cannot be read, a line has no number, or there are fewer than two; the message names the
    line.
    """
    try:
        check_regular(Path(path))
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise PlanError(
            f"cannot read the arrivals {path!r}: {reason}; give {POISSON!r}, or a file of one time in seconds per line"
        ) from None
    times = list(_parse_times(path, lines))
    if len(times) < 2:
        raise PlanError(
            f"{path} has {len(times)} times; give those of two frames at least, one time in seconds per line"
        )
    return times


def _parse_times(path: str, lines: Sequence[str]) -> Iterator[float]:
    for number, line in enumerate(lines, 1):
        field = line.split(",")[0].strip().strip('"')
        if not field or field.startswith("#"):
            continue
        try:
            seconds = float(field)
        except ValueError:
            # The header of a CSV file.
            if number == 1:
                continue
            seconds = math.nan
        if not math.isfinite(seconds):
            raise PlanError(f"{path}, line {number}: {field[:40]!r} is no time in seconds")
        yield seconds


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
