"""Side: one way to run a model, streamed and measured round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import api
from pipeline.scheduler.statistics import Statistics

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

ROUND_S = 1.0
"""How long a side streams in one round, unless the caller says how many frames."""

FEWEST = 4
"""Frames of a side in one round, however slow it is."""

_WARM_UP = 2

Frames = Sequence[Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class StageShare:
    """What one stage did while a side streamed.

    Attributes
    ----------
    name, device : str
    cores : tuple of int
        Host cores that it had.
    busy : float
        Share of the time in which it runs or copies while frames stream steadily, 0 to 1.
    seconds : float
        Mean time of one frame, transfers included.
    predicted_s : float
        What the plan says.
    """

    name: str
    device: str
    cores: tuple[int, ...]
    busy: float
    seconds: float
    predicted_s: float


@dataclass(frozen=True)
class Side:
    """One way to run the model; all values are medians over the rounds.

    Attributes
    ----------
    name : str
        Such as ``"unsplit, 1 core"`` or ``"2 stages, 2 cores"``.
    frames_per_s : float
        Rate between the first and the last result of a stream: filling the pipeline belongs to the latency.
    latency_p50_s, latency_p99_s : float
        From submission to result while frames stream as fast as they are taken, so that waiting in the queues counts.
    stages : tuple of StageShare
    """

    name: str
    frames_per_s: float
    latency_p50_s: float
    latency_p99_s: float
    stages: tuple[StageShare, ...]


class Run:
    """A side while it is measured.

    Parameters
    ----------
    name : str
    bundle : Bundle
        What it runs.
    """

    def __init__(self, name: str, bundle: Bundle) -> None:
        self.name, self._bundle = name, bundle
        self._frames = 0
        self._rates: list[float] = []
        self._statistics: list[Statistics] = []

    def warm_up(self, inputs: Frames, frames: int | None) -> None:
        """Stream a little, uncounted, and choose the frames of a round unless they are given."""
        rate, _ = _stream(self._bundle, inputs, _WARM_UP)
        self._frames = frames or max(FEWEST, math.ceil(ROUND_S * rate))

    def stream(self, inputs: Frames) -> None:
        """Stream one round."""
        rate, found = _stream(self._bundle, inputs, self._frames)
        self._rates.append(rate)
        self._statistics.append(found)

    def result(self) -> Side:
        """Return the medians over the rounds so far."""
        latencies = [each.latency_s for each in self._statistics]
        return Side(
            name=self.name,
            frames_per_s=statistics.median(self._rates),
            latency_p50_s=statistics.median(each.p50 for each in latencies),
            latency_p99_s=statistics.median(each.p99 for each in latencies),
            stages=tuple(self._share(number) for number in range(len(self._bundle.plan.stages))),
        )

    def _share(self, number: int) -> StageShare:
        stage = self._bundle.plan.stages[number]
        seconds = [_seconds_per_frame(each, number) for each in self._statistics]
        # The statistics' own share counts filling and draining as idle, which is much of a short stream.
        busy = [min(1.0, rate * each) for rate, each in zip(self._rates, seconds, strict=True)]
        return StageShare(
            name=stage.name,
            device=stage.device,
            cores=stage.cores,
            busy=statistics.median(busy),
            seconds=statistics.median(seconds),
            predicted_s=stage.seconds,
        )


def _seconds_per_frame(found: Statistics, number: int) -> float:
    stage = found.stages[number]
    return stage.busy * found.elapsed_s / stage.frames_out


def _stream(bundle: Bundle, inputs: Frames, frames: int) -> tuple[float, Statistics]:
    """Return the rate of a stream in frames per second, and the pipeline's statistics."""
    ends: list[float] = []
    failures: list[BaseException] = []

    def ended(future: Future[Any]) -> None:
        ends.append(perf_counter())
        if error := future.exception():
            failures.append(error)

    # The caller only waits for places: what it did beside the workers would take their cores' time.
    with api.load(bundle) as running:
        for frame in islice(cycle(inputs), frames):
            running.submit(frame, copy=False).add_done_callback(ended)
    if failures:
        raise failures[0]
    return (frames - 1) / max(ends[-1] - ends[0], 1e-9), running.statistics()
