"""Side: one way to run a model, streamed and measured round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import api
from pipeline.plans import TensorSpec
from pipeline.scheduler.copies import snapshot
from pipeline.scheduler.statistics import Statistics

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.trace import Trace

ROUND_S = 1.0
"""How long a side streams in one round, unless the caller says how many frames."""

FEWEST = 4
"""Frames of a side in one round, however slow it is; of each replica."""

MOST = 10_000
"""And however fast it is."""

Frames = Sequence[Mapping[str, np.ndarray]]
Watch = Callable[["Pipeline"], None]
"""Is given each pipeline that begins to stream."""


def random_frames(specs: Sequence[TensorSpec], count: int) -> Frames:
    """Return so many random frames, aligned, so that they pass by reference: the copying of inputs is not measured."""
    from pipeline.executor.build import random_frame

    return [{name: snapshot(array) for name, array in random_frame(specs, number).items()} for number in range(count)]


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
    watch : callable
        Given each pipeline that begins to stream.
    always : Trace, optional
        Where to note the events of all streams that have no trace of their own.
    """

    def __init__(self, name: str, bundle: Bundle, watch: Watch, always: Trace | None = None) -> None:
        self.name, self._bundle, self._watch, self._always = name, bundle, watch, always
        self._together = max(stage.replicas for stage in bundle.plan.stages)
        self._frames = 0
        self._rates: list[float] = []
        self._statistics: list[Statistics] = []

    def warm_up(self, inputs: Frames, frames: int | None) -> None:
        """Stream a little, uncounted, and choose the frames of a round unless they are given."""
        fewest = FEWEST * self._together
        rate, _ = self._stream(inputs, fewest)
        self._frames = frames or min(MOST, max(fewest, math.ceil(ROUND_S * rate)))

    def stream(self, inputs: Frames) -> float:
        """Stream one round, and return its frames per second."""
        rate, found = self._stream(inputs, self._frames)
        self._rates.append(rate)
        self._statistics.append(found)
        return rate

    def trace(self, inputs: Frames, trace: Trace) -> None:
        """Stream one round more, uncounted, and note its events."""
        self._stream(inputs, self._frames, trace)

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

    def _stream(self, inputs: Frames, frames: int, trace: Trace | None = None) -> tuple[float, Statistics]:
        """Return the rate of a stream in frames per second, and the pipeline's statistics."""
        # The caller only waits for places: what it did beside the workers would take their cores' time.
        ends = _Ends(self._together)
        with api.load(self._bundle, trace=self._always if trace is None else trace) as running:
            self._watch(running)
            for frame in islice(cycle(inputs), frames):
                running.submit(frame, copy=False).add_done_callback(ends.note)
        return ends.rate(), running.statistics()

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


class _Ends:
    """When the frames of a stream ended, of which so many may end `together`, one on each replica."""

    def __init__(self, together: int = 1) -> None:
        self._together = together
        self._times: list[float] = []
        self._failures: list[BaseException] = []

    def note(self, future: Future[Any]) -> None:
        """Note the end of one frame."""
        self._times.append(perf_counter())
        # Cancelled frames belong to a stream that is given up, of which nobody asks the rate.
        if not future.cancelled() and (error := future.exception()):
            self._failures.append(error)

    def rate(self) -> float:
        """Return the frames per second between the first ends and the last, or raise the first failure.

        Counted from the first end on, of frames that end in pairs a pair too many would be seen: of four, three in the
        time of two.
        """
        if self._failures:
            raise self._failures[0]
        first = min(self._together, len(self._times) - 1)
        return (len(self._times) - first) / max(self._times[-1] - self._times[first - 1], 1e-9)
