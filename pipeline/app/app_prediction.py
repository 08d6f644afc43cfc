"""Prediction of an application: rates and latencies of its streams and models, from the models' plans.

Models share what they run on: a core or device serves all in turn.  Streams get equal rates until something that they
need is always busy (max-min fairness: Bertsekas and Gallager, "Data Networks", 1992), as fair queues serve them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.app.application import App
from pipeline.app.model_program import ModelProgram
from pipeline.app.nodes import Model
from pipeline.core.plan.plan import Plan
from pipeline.errors import AppError, near
from pipeline.prediction.predict import Prediction, predict

CROPS = 4.0
"""Crops of a frame, where nothing else is said."""

SOURCE = "its source"
"""Limit of a stream that comes at its own rate."""


@dataclass(frozen=True)
class StreamPrediction:
    """One stream."""

    frames_per_s: float
    """Rate; 0 for a stream that no model reads, and that has none of its own."""
    latency_s: float
    """Time of a frame through the models when nothing waits."""
    queued_latency_s: float
    """The same where more frames come than are taken (Little's law)."""
    bottleneck: str
    """Model, core or device that sets its pace, or `SOURCE`."""


@dataclass(frozen=True)
class ModelPrediction:
    """One model."""

    runs: float
    """Runs for a frame."""
    runs_per_s: float
    """Runs for all streams together."""
    busy: float
    """Share of what it could do alone, from 0 to 1."""
    latency_s: float
    """Time of one run when nothing waits."""


@dataclass(frozen=True)
class AppPrediction:
    """Predicted streams and models by name, and busy shares of what several models use."""

    streams: Mapping[str, StreamPrediction]
    models: Mapping[str, ModelPrediction]
    busy: Mapping[str, float]


def read_plans(app: App, folder: Path = Path()) -> dict[str, Plan]:
    """Return the plans of an application's models; a model that is no bundle is planned, and not built."""
    return {name: ModelProgram(name, node, folder=folder).plan for name, node in app.kinds(Model)}


def predict_app(
    app: App,
    plans: Mapping[str, Plan],
    *,
    runs: Mapping[str, float] | None = None,
    fps: Mapping[str, float] | None = None,
) -> AppPrediction:
    """Predict an application from its models' plans.

    `runs` of a model for a frame, in the mean, are crops, or the share of frames that a condition lets through; by
    default `CROPS` for each box or tile, else 1. By default streams bring the application's frames per second, else as
    many as are taken. Preparing pictures, trackers and sinks are not part of it. Raises `AppError` if a name is
    unknown, or a plan has no times.
    """
    _check_names(runs or {}, plans)
    _check_names(fps or {}, app.streams)
    counts = {name: min(CROPS, node.most) if node.for_each else 1.0 for name, node in app.kinds(Model)} | dict(
        runs or {}
    )
    times = {name: _predict_model(name, plan) for name, plan in plans.items()}
    # 1. Seconds of each resource for a frame of each stream.
    loads: dict[str, dict[str, float]] = {stream: defaultdict(float) for stream in app.streams}
    for name, plan in plans.items():
        for stream in app.stream_names[name]:
            for resource, seconds in _loads(name, plan, times[name]):
                loads[stream][resource] += seconds * counts[name]
    # 2. Fair rates.
    most = {name: (fps or {}).get(name) or stream.fps or math.inf for name, stream in app.streams.items()}
    shares = _share(loads, most)
    rates = {stream: rate for stream, (rate, _) in shares.items()}
    # 3. What follows from them.
    streams = {}
    for name in app.streams:
        rate, limit = shares[name]
        latency_s = _latency(app, name, counts, times)
        # A stream that comes at its own rate waits for nothing.
        queued_s = app.room(name, plans) / rate if rate and limit != SOURCE else 0.0
        streams[name] = StreamPrediction(rate, latency_s, max(latency_s, queued_s), limit)
    models = {}
    for name, prediction in times.items():
        per_s = counts[name] * sum(rates[stream] for stream in app.stream_names[name])
        models[name] = ModelPrediction(counts[name], per_s, per_s * prediction.interval_s, prediction.latency_s)
    shared = sorted({resource for load in loads.values() for resource in load} - plans.keys())
    busy = {name: sum(load[name] * rates[stream] for stream, load in loads.items()) for name in shared}
    return AppPrediction(streams, models, busy)


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    known = tuple(known)
    for name in names:
        if name not in known:
            raise AppError(f"the application has no {name!r} for that{near(name, known)}")


def _predict_model(name: str, plan: Plan) -> Prediction:
    prediction = predict(plan)
    if not prediction.interval_s:
        raise AppError(f"the plan of {name!r} has no times; plan its model again, with estimates or --measure")
    return prediction


def _loads(name: str, plan: Plan, prediction: Prediction) -> Iterator[tuple[str, float]]:
    """Yield resources with their seconds for one run: the model's own pace, cores, and devices without any."""
    yield name, prediction.interval_s
    for stage in plan.stages:
        for replica, seconds in enumerate(stage.replica_times):
            device = plan.board.device(stage.replica_names[replica])
            load_s = seconds * stage.share(replica)
            if not device.capabilities.occupies_cores:
                yield f"device {device.name}", load_s / device.slot_count
                continue
            for core in stage.cores_of(replica):
                yield f"core {core}", load_s


def _share(loads: Mapping[str, Mapping[str, float]], most: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Return the rate of each stream, and what limits it."""
    shares: dict[str, tuple[float, str]] = {}
    while active := [stream for stream in loads if stream not in shares]:
        # The level at which each resource is always busy, if all active streams have it.
        levels = {}
        for resource in dict.fromkeys(resource for stream in active for resource in loads[stream]):
            used = sum(loads[stream].get(resource, 0.0) * rate for stream, (rate, _) in shares.items())
            if seconds := sum(loads[stream].get(resource, 0.0) for stream in active):
                levels[resource] = max(0.0, 1 - used) / seconds
        limit = min(levels, key=lambda resource: levels[resource], default="")
        level, pace = levels.get(limit, math.inf), min(most[stream] for stream in active)
        if pace <= level:
            shares |= {name: (pace if pace < math.inf else 0.0, SOURCE) for name in active if most[name] == pace}
        else:
            shares |= {name: (level, limit) for name in active if loads[name].get(limit)}
    return shares


def _latency(app: App, stream: str, counts: Mapping[str, float], times: Mapping[str, Prediction]) -> float:
    """Return the time of a frame on its longest way, with nothing in front of it."""
    ends: dict[str, float] = {}
    for name in app.order:
        if stream in app.stream_names[name]:
            begin = max((ends.get(read, 0.0) for read in app.reads(name)), default=0.0)
            # Crops of a frame follow each other at the model's pace.
            runs_s = times[name].latency_s + max(counts[name] - 1, 0) * times[name].interval_s if name in times else 0.0
            ends[name] = begin + runs_s
    return max(ends.values(), default=0.0)
