"""Throughput: model variants, streamed and measured round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.comparison.random_frame import candidates
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import StageError
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.switch_interval import choose_interval
from pipeline.system.memory import snapshot

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.frame import FrameFuture
    from pipeline.scheduler.trace import Trace

ROUND_S = 1.0
"""Seconds of a variant's round, unless the caller says how many frames."""

MIN_FRAMES = 4
"""Frames of a variant in one round, however slow it is; of each replica."""

MAX_FRAMES = 10_000
"""And however fast it is."""

Frames = Sequence[Mapping[str, np.ndarray]]
Decode = Callable[[Mapping[str, Any]], object]
Watch = Callable[["Pipeline"], None]
"""A function of each pipeline that begins to stream."""


def random_frames(specs: Sequence[TensorSpec], count: int) -> Frames:
    """Return so many random frames of the usual kind."""
    return next(_frames_by_kind(specs, count))


def _frames_by_kind(specs: Sequence[TensorSpec], count: int) -> Iterator[Frames]:
    """Yield random frames per kind, aligned for passing by reference."""
    for trials in zip(*(candidates(specs, number) for number in range(count)), strict=True):
        yield [{name: snapshot(array) for name, array in trial.arrays.items()} for trial in trials]


@dataclass(frozen=True)
class StageShare:
    """Load of one stage while a variant streamed."""

    name: str
    device: str
    cores: tuple[int, ...]
    """Host cores that it had."""
    busy: float
    """Share of the time in which it runs or copies while frames stream steadily, 0 to 1."""
    seconds: float
    """Mean time of one frame, transfers included."""
    predicted_s: float
    """The plan's prediction."""
    interpreter: float = 0.0
    """Share of its busy time in which it waited for Python's interpreter."""


@dataclass(frozen=True)
class Variant:
    """A way to run the model; values are medians over rounds."""

    name: str
    """Name of the variant, such as ``"unsplit, 1 core"`` or ``"2 stages, 2 cores"``."""
    frames_per_s: float
    """Rate between the first and the last result of a stream: filling the pipeline belongs to the latency."""
    latency_p50_s: float
    latency_p99_s: float
    """Seconds from submission to result while frames stream as fast as they are taken, so that waiting in the queues
    counts."""
    stages: tuple[StageShare, ...]


class VariantRun:
    """A variant while it is measured.

    `common_trace` gets the events of all streams without one of their own. `decode` is called with each frame's outputs
    by name, in a thread of its own, as a stream does; a frame ends behind it.
    """

    def __init__(
        self,
        name: str,
        bundle: Bundle,
        watch: Watch,
        common_trace: Trace | None = None,
        decode: Decode | None = None,
    ) -> None:
        self.name, self.bundle, self._watch, self._common_trace = name, bundle, watch, common_trace
        self._decode = decode
        self._replicas = max(stage.replicas for stage in bundle.plan.stages)
        self._frames = 0
        self._rates: list[float] = []
        self._statistics: list[Statistics] = []

    def warm_up(self, inputs: Frames, frames: int | None, seconds: float = ROUND_S) -> None:
        """Stream uncounted; derive frames per round from `seconds` if unspecified."""
        # With fewer, some replicas would have no frame at all.
        minimum = MIN_FRAMES * self._replicas
        rate, _ = self._stream_frames(inputs, minimum)
        self._frames = frames or min(MAX_FRAMES, max(minimum, math.ceil(seconds * rate)))

    def find_inputs(self, count: int, frames: int | None, seconds: float = ROUND_S) -> Frames:
        """Warm up and return frames of the first accepted kind; `StageError` if it takes none."""
        failure: StageError | None = None
        for inputs in _frames_by_kind(self.bundle.plan.inputs, count):
            try:
                self.warm_up(inputs, frames, seconds)
            except StageError as error:  # noqa: PERF203 - of some kinds at most
                failure = failure or error
            else:
                return inputs
        raise failure or ValueError("no random frames")

    def stream(self, inputs: Frames) -> float:
        """Stream one round, and return its frames per second."""
        rate, counters = self._stream_frames(inputs, self._frames)
        self._rates.append(rate)
        self._statistics.append(counters)
        return rate

    def trace(self, inputs: Frames, trace: Trace) -> None:
        """Stream one round more, uncounted, and note its events."""
        self._stream_frames(inputs, self._frames, trace)

    def result(self) -> Variant:
        """Return the medians over the rounds so far."""
        latencies = [counters.latency_s for counters in self._statistics]
        return Variant(
            name=self.name,
            frames_per_s=statistics.median(self._rates),
            latency_p50_s=statistics.median(latency.p50 for latency in latencies),
            latency_p99_s=statistics.median(latency.p99 for latency in latencies),
            stages=tuple(self._share(number) for number in range(len(self.bundle.plan.stages))),
        )

    def _stream_frames(self, inputs: Frames, frames: int, trace: Trace | None = None) -> tuple[float, Statistics]:
        """Return a stream's frames per second and statistics."""
        # The caller only waits for places: what it did beside the workers would take their cores' time.
        ends = _FrameEnds()
        plan, codes = self.bundle.plan, self.bundle.codes
        with (
            ThreadPoolExecutor(1) as decoder,
            # As the commands do that stream: pages and tables that are drawn meanwhile are Python.
            Pipeline(
                plan,
                codes,
                trace=self._common_trace if trace is None else trace,
                switch_interval=choose_interval(plan),
            ) as running,
        ):
            self._watch(running)
            for frame in islice(cycle(inputs), frames):
                # Aligned already, and read by nobody else meanwhile.
                future = running.submit(frame, copy=False)
                if self._decode is None:
                    future.notify_at_end(ends.note)
                else:
                    decode = partial(_decode_and_note, self._decode, future, ends)
                    future.notify_at_end(lambda _, decode=decode: decoder.submit(decode))  # type: ignore[misc]
        # Behind the block, whose end waits for all frames and their results.
        return ends.rate(self._replicas), running.statistics()

    def _share(self, number: int) -> StageShare:
        stage = self.bundle.plan.stages[number]
        seconds = [_seconds_per_frame(counters, number) for counters in self._statistics]
        # The statistics' own share counts filling and draining as idle, which is much of a short stream.
        busy = [min(1.0, rate * duration) for rate, duration in zip(self._rates, seconds, strict=True)]
        return StageShare(
            name=stage.name,
            device=stage.device,
            cores=stage.cores,
            busy=statistics.median(busy),
            seconds=statistics.median(seconds),
            predicted_s=stage.seconds,
            interpreter=statistics.median(run.stages[number].interpreter_share for run in self._statistics),
        )


def _decode_and_note(decode: Decode, future: FrameFuture, ends: _FrameEnds) -> None:
    try:
        decode(future.outputs())
    except Exception as error:  # noqa: BLE001 - raised with the rate
        ends.fail(error)
    ends.note(future)


def _seconds_per_frame(counters: Statistics, number: int) -> float:
    stage = counters.stages[number]
    # Of replicas the share is their mean, so that this is the time between two frames of the stage.
    return stage.busy * counters.elapsed_s / stage.frames_out


def turns(runs: Sequence[VariantRun], count: int) -> Iterator[Sequence[VariantRun]]:
    """Yield the variants `count` times, reversing alternately to vary neighbours."""
    for number in range(count):
        yield runs[:: -1 if number % 2 else 1]


def steady_rate(ends: Sequence[float], replicas: int = 1) -> float:
    """Return frames per second between first and last ends.

    Frames of several replicas may end together. Counted from the first end on, of frames that end in pairs a pair too
    many would be seen: of four, three in the time of two.
    """
    first = min(replicas, len(ends) - 1)
    # Null devices may end all frames within one tick of the clock.
    return (len(ends) - first) / max(ends[-1] - ends[first - 1], 1e-9)


class _FrameEnds:
    """End times of a stream's frames, and their failures."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._failures: list[BaseException] = []

    def note(self, future: Future[Any]) -> None:
        """Note the end of one frame."""
        # By whichever thread ends the frame: appending is one step, which no other thread can divide.
        self._times.append(perf_counter())
        # Cancelled frames belong to a stream that is given up, of which nobody asks the rate.
        if not future.cancelled() and (error := future.exception()):
            self._failures.append(error)

    def fail(self, error: BaseException) -> None:
        """Note a failure behind the pipeline."""
        self._failures.append(error)

    def rate(self, replicas: int) -> float:
        """Return frames per second, or raise the first failure."""
        if self._failures:
            raise self._failures[0]
        return steady_rate(self._times, replicas)
