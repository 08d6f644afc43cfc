"""Update: all that the page shows at one moment, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.web import drawing
from pipeline.web.recent import Recent
from pipeline.web.sample import Sample, Sampler
from pipeline.web.summary import summary

if TYPE_CHECKING:
    from pipeline.plans import Plan
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics

Rgb = Callable[[np.ndarray], np.ndarray]


class Watched:
    """A running pipeline that is looked at; nothing is asked of it but by `update`.

    Parameters
    ----------
    running : Pipeline
    rgb : callable, optional
        Turns the first input into RGB [height, width, 3], where it comes in a camera's own format.
    """

    def __init__(self, running: Pipeline, rgb: Rgb | None = None) -> None:
        self._running, self._rgb, self._recent, self._sampler = running, rgb, Recent(), Sampler()
        self._shown: tuple[Sample, dict[str, Any]] | None = None
        self.close = running.observe(self._sampler)

    def update(self) -> dict[str, Any]:
        """Return what is to be shown now, and let one more frame be kept for the next time."""
        running, found, plan = self._running, self._running.statistics(), self._running.plan
        self._recent.add(found)
        self._sampler.wanted = True
        return {
            "model": plan.model,
            "state": _state(running),
            "frames": self._frames(found),
            "latency": {"ms": _milliseconds(found.latency_s), **drawing.histogram(running.latencies())},
            "stages": [self._stage(plan, number, stage) for number, stage in enumerate(found.stages)],
            "edges": drawing.edges(plan),
            "timeline": None if running.trace is None else drawing.timeline(running.trace, plan),
            "frame": self._frame(plan),
        }

    def _frames(self, found: Statistics) -> dict[str, Any]:
        return {
            "per_s": self._recent.frames_per_s,
            "submitted": found.submitted,
            "in_flight": found.in_flight,
            "waiting": found.waiting,
            "ends": {
                "delivered": found.delivered,
                "failed": found.failed,
                "cancelled": found.cancelled,
                **{f"dropped ({reason})": count for reason, count in found.dropped.items()},
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
        if self._shown is None or self._shown[0] is not sample:
            self._shown = sample, _shown(sample, plan, self._rgb)
        return self._shown[1]


def _state(running: Pipeline) -> str:
    if running.error is not None:
        return f"stopped: {running.error}"
    return "closed" if running.closed else "running"


def _milliseconds(durations: Percentiles) -> list[float]:
    return [round(seconds * 1e3, 3) for seconds in astuple(durations)]


def _shown(sample: Sample, plan: Plan, rgb: Rgb | None) -> dict[str, Any]:
    images = [rgb(sample.inputs[0])] if rgb is not None else []
    inputs = [
        summary(spec.name, array, image)
        for spec, array, image in zip_longest(plan.inputs[: len(sample.inputs)], sample.inputs, images)
    ]
    shown: dict[str, Any] = {"number": sample.number, "inputs": inputs, "outputs": [], "error": None}
    if isinstance(sample.result, BaseException):
        return {**shown, "error": str(sample.result)}
    named = sample.result if isinstance(sample.result, Mapping) else {plan.outputs[0].name: sample.result}
    return {**shown, "outputs": [summary(name, array) for name, array in named.items()]}
