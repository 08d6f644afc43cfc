"""Update: the page's current content, as plain values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from itertools import zip_longest
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.core.tensor_quantization import numbers
from pipeline.observe.web import drawing
from pipeline.observe.web.sample import Sample, Sampler
from pipeline.observe.web.summary import data_url, summary
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics
from pipeline.system.machine_state import read_clock_mhz, read_temperature_c

Rgb = Callable[[np.ndarray], np.ndarray]

DrawFrame = Callable[[Any, Sequence[np.ndarray], Mapping[str, np.ndarray]], "tuple[bytes | None, str] | None"]
"""Draws a frame by its metadata, inputs and outputs: a JPEG or None, and a line of text; None for nothing."""


POINTS = 300
"""Points of a curve: two minutes of a page's updates, and about as many as a phone has pixels."""

NAMES = ("frames_per_s", "latency_ms", "clock_mhz", "temperature_c")


WINDOW_S = 2.0
"""Seconds of the window: a stage of some frames per second has a steady share."""


class WatchedPipeline:
    """A running pipeline under observation, accessed by `update` alone.

    `rgb` turns the first input into RGB [height, width, 3], where it comes in a camera's own format.
    """

    def __init__(self, running: Pipeline, rgb: Rgb | None = None, draw: DrawFrame | None = None) -> None:
        self._running, self._rgb, self._draw = running, rgb, draw
        self._recent, self._sampler, self._history = Recent(), Sampler(), History()
        self._description: tuple[Sample, dict[str, Any]] | None = None
        self.close = running.observe(self._sampler)

    def update(self) -> dict[str, Any]:
        """Return the newest state and request the next frame's capture."""
        # One snapshot for all parts of the update, so that its numbers fit each other.
        running, statistics, plan = self._running, self._running.statistics(), self._running.plan
        self._recent.add(statistics)
        self._history.add(self._recent.frames_per_s, 1e3 * statistics.latency_s.p50)
        self._sampler.wants_frame = True
        return {
            "model": plan.model,
            "state": _state(running),
            "frames": self._frames(statistics),
            "latency": {"ms": _milliseconds(statistics.latency_s), **drawing.histogram(running.latencies())},
            "stages": [self._stage(plan, number, stage) for number, stage in enumerate(statistics.stages)],
            "edges": drawing.edges(plan),
            "timeline": None if running.trace is None else drawing.timeline(running.trace, plan),
            "history": self._history.curves(),
            "frame": self._frame(plan),
        }

    def _frames(self, statistics: Statistics) -> dict[str, Any]:
        return {
            "per_s": self._recent.frames_per_s,
            "submitted": statistics.submitted,
            "in_flight": statistics.in_flight,
            "waiting": statistics.waiting,
            "ends": {
                "delivered": statistics.delivered,
                "failed": statistics.failed,
                "cancelled": statistics.cancelled,
                **{f"dropped ({reason})": count for reason, count in statistics.dropped.items()},
            },
        }

    def _stage(self, plan: Plan, number: int, stage: StageStatistics) -> dict[str, Any]:
        return {
            "name": stage.name,
            "device": stage.device,
            "replicas": stage.replicas,
            "restarts": stage.restarts,
            "busy": self._recent.busy(stage),
            "queue": stage.queue_length,
            # A swap may come between the two, with fewer stages.
            "depth": plan.stages[number].queue_depth if number < len(plan.stages) else 0,
            "run_ms": _milliseconds(stage.run_s),
            "wait_ms": _milliseconds(stage.wait_s),
            "in": stage.frames_in,
            "out": stage.frames_out,
            "failed": stage.failed,
        }

    def _frame(self, plan: Plan) -> dict[str, Any] | None:
        sample = self._sampler.last
        if sample is None:
            return None
        # Made once for each sample: pictures take longer than all other parts.
        if self._description is None or self._description[0] is not sample:
            self._description = sample, _describe_sample(sample, plan, self._rgb, self._draw)
        return self._description[1]


def _state(running: Pipeline) -> str:
    if running.error is not None:
        return f"stopped: {running.error}"
    return "closed" if running.closed else "running"


def _milliseconds(durations: Percentiles) -> list[float]:
    return [round(seconds * 1e3, 3) for seconds in astuple(durations)]


def _describe_sample(sample: Sample, plan: Plan, rgb: Rgb | None, draw: DrawFrame | None) -> dict[str, Any]:
    images = [rgb(sample.inputs[0])] if rgb is not None else []
    inputs = [
        summary(spec.name, array, image)
        for spec, array, image in zip_longest(plan.inputs[: len(sample.inputs)], sample.inputs, images)
    ]
    description: dict[str, Any] = {"number": sample.number, "inputs": inputs, "outputs": []}
    description |= {"error": None, "result": None}
    if isinstance(sample.result, BaseException):
        return {**description, "error": str(sample.result)}
    arrays = sample.result if isinstance(sample.result, Mapping) else {plan.outputs[0].name: sample.result}
    # Scores as scores: integers of a quantised model would tell nobody anything.
    outputs = numbers(arrays, plan.quantization)
    drawn = draw(sample.metadata, sample.inputs, arrays) if draw is not None else None
    if drawn is not None and drawn[0] is not None:
        # Once is enough.
        description["inputs"] = [{**array, "picture": None} for array in inputs]
    return {
        **description,
        "result": drawn and {"picture": drawn[0] and data_url("jpeg", drawn[0]), "text": drawn[1]},
        "outputs": [{**summary(name, array), "dtype": str(arrays[name].dtype)} for name, array in outputs.items()],
    }


class History:
    """Values of each update, the newest last."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, tuple[float | None, ...]]] = deque(maxlen=POINTS)

    def add(self, frames_per_s: float, latency_ms: float) -> None:
        """Add the values of now, and those of the machine."""
        self._points.append((perf_counter(), (frames_per_s, latency_ms, read_clock_mhz(), read_temperature_c())))

    def curves(self) -> dict[str, object]:
        """Return plain values: ``seconds`` of each point, at most 0, and ``curves`` by name; None where unknown."""
        newest = self._points[-1][0] if self._points else 0.0
        curves = {
            name: [None if values[number] is None else round(values[number] or 0.0, 3) for _, values in self._points]
            for number, name in enumerate(NAMES)
        }
        return {"seconds": [round(time - newest, 2) for time, _ in self._points], "curves": curves}


class Recent:
    """The statistics of the last seconds.

    `frames_per_s`: frames delivered per second.
    """

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, Statistics]] = deque()

    def add(self, statistics: Statistics) -> None:
        """Add the newest statistics, dropping all outdated but one."""
        time = perf_counter()
        self._snapshots.append((time, statistics))
        # The newest one from before the window remains, so that the rates span all of it.
        while len(self._snapshots) > 2 and time - self._snapshots[1][0] >= WINDOW_S:
            self._snapshots.popleft()

    @property
    def frames_per_s(self) -> float:
        """Frames delivered per second; at first, since the beginning."""
        newest = self._snapshots[-1][1]
        seconds = self._seconds
        return (newest.delivered - self._snapshots[0][1].delivered) / seconds if seconds else newest.frames_per_s

    def busy(self, stage: StageStatistics) -> float:
        """Return a stage's busy share, 0 to 1, initially since the start."""
        first = next((counts for counts in self._snapshots[0][1].stages if counts.name == stage.name), None)
        seconds = self._seconds
        if first is None or not seconds:
            return stage.busy
        # A swap may put a new stage under the same name, with counters of its own.
        return min(1.0, max(0.0, stage.busy_s - first.busy_s) / (seconds * stage.replicas))

    @property
    def _seconds(self) -> float:
        return self._snapshots[-1][0] - self._snapshots[0][0]
