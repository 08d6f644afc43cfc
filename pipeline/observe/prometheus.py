"""Metrics: a running pipeline's statistics for Prometheus, local only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipeline.observe.local_server import ADDRESS, LoopbackServer, listen
from pipeline.observe.wsgi import WsgiServer
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.statistics import Percentiles, Statistics

PURPOSE = "serving metrics"
_PREFIX = "soc_pipeline"
# Prometheus has quantiles as shares, in a label.
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


class MetricsServer(LoopbackServer):
    """Serves the newest `Statistics` at `url` until closed, reading them on request.

    Port 0 takes one that is free. Limits of connections are those of `pipeline.observe.wsgi.WsgiServer`.
    """

    def __init__(self, statistics: Callable[[], Statistics], port: int, **limits: Any) -> None:
        super().__init__()
        client = require("prometheus_client", "metrics", PURPOSE)
        # Of its own, so that several pipelines in one process are served apart.
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(_Collector(statistics))
        self._server = listen("metrics", port, lambda: WsgiServer(client.make_wsgi_app(registry), port, **limits))
        self.port = self._server.server_port
        self._start(self._server.serve_forever, "metrics")

    @property
    def url(self) -> str:
        """Address for Prometheus, or for a browser."""
        return f"http://{ADDRESS}:{self.port}/metrics"

    def _stop(self) -> None:
        self._server.end()


def serve(running: Pipeline, port: int = 0) -> MetricsServer:
    """Serve a pipeline's statistics for Prometheus on the loopback address.

    Raises `InputError` if the port is taken, not allowed, or none; `MissingExtra` if prometheus-client is not
    installed.

    Parameters
    ----------
    running : Pipeline
        Pipeline, which may also be closed before the server is: then its last statistics are served.
    port : int
        0 takes one that is free; the result's ``port`` says which.

    Returns
    -------
    MetricsServer
        A context manager, that stops serving.

    Examples
    --------
    >>> with pipeline.load("model.bundle") as running, metrics.serve(running, 9200) as server:  # doctest: +SKIP
    ...     print(server.url)
    """
    return MetricsServer(running.statistics, port)


class _Collector:
    """Converts a snapshot to metrics at every request."""

    def __init__(self, statistics: Callable[[], Statistics]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Any]:
        core = require("prometheus_client.core", "metrics", PURPOSE)
        snapshot = self._statistics()
        yield from _frames(core, snapshot)
        yield from _stages(core, snapshot)


def _frames(core: Any, snapshot: Statistics) -> Iterator[Any]:
    yield core.CounterMetricFamily(f"{_PREFIX}_frames_submitted", "Frames accepted.", value=snapshot.submitted)
    # One metric with labels instead of one for each end, so that sums over them add up.
    ends = core.CounterMetricFamily(f"{_PREFIX}_frames_ended", "Frames by their end.", labels=("end", "reason"))
    for end in ("delivered", "failed", "cancelled"):
        ends.add_metric((end, ""), getattr(snapshot, end))
    for reason, count in snapshot.dropped.items():
        ends.add_metric(("dropped", reason), count)
    yield ends
    for name, description, value in (
        ("frames_in_flight", "Frames that have not ended.", snapshot.in_flight),
        ("frames_waiting", "Frames among them that wait at the entrance.", snapshot.waiting),
    ):
        yield core.GaugeMetricFamily(f"{_PREFIX}_{name}", description, value=value)
    # A gauge and no summary, which would have to count and add up since the start.
    latency = core.GaugeMetricFamily(
        f"{_PREFIX}_latency_seconds", "From submission to delivery, of the newest frames.", labels=("quantile",)
    )
    _add_quantiles(latency, (), snapshot.latency_s)
    yield latency


def _stages(core: Any, snapshot: Statistics) -> Iterator[Any]:
    names = ("stage", "device")
    frames_in = core.CounterMetricFamily(f"{_PREFIX}_stage_frames_in", "Frames that a stage took up.", labels=names)
    frames_out = core.CounterMetricFamily(
        f"{_PREFIX}_stage_frames_out", "Frames that a stage ran, failed on or passed by.", labels=(*names, "end")
    )
    # A counter that only grows: its rate is the share in whichever window somebody asks for.
    busy = core.CounterMetricFamily(f"{_PREFIX}_stage_busy_seconds", "Time of running and copying.", labels=names)
    restarts = core.CounterMetricFamily(
        f"{_PREFIX}_stage_restarts", "Workers replaced because their device did not come back.", labels=names
    )
    queue = core.GaugeMetricFamily(f"{_PREFIX}_stage_queue_length", "Frames that wait for a stage.", labels=names)
    times = core.GaugeMetricFamily(
        f"{_PREFIX}_stage_seconds",
        "Time of a frame in a stage, of the newest frames: it waits, is copied, and runs.",
        labels=(*names, "part", "quantile"),
    )
    for stage in snapshot.stages:
        labels = (stage.name, stage.device)
        frames_in.add_metric(labels, stage.frames_in)
        for end, count in (("ran", stage.frames_out), ("failed", stage.failed), ("skipped", stage.skipped)):
            frames_out.add_metric((*labels, end), count)
        busy.add_metric(labels, stage.busy_s)
        restarts.add_metric(labels, stage.restarts)
        queue.add_metric(labels, stage.queue_length)
        for part, durations in (("wait", stage.wait_s), ("copy", stage.copy_s), ("run", stage.run_s)):
            _add_quantiles(times, (*labels, part), durations)
    yield from (frames_in, frames_out, busy, restarts, queue, times)
    if any(stage.steps for stage in snapshot.stages):
        yield from _steps(core, snapshot)


def _steps(core: Any, snapshot: Statistics) -> Iterator[Any]:
    names = ("stage", "step", "device")
    busy = core.CounterMetricFamily(
        f"{_PREFIX}_step_busy_seconds", "Time for which a step had its device.", labels=names
    )
    times = core.GaugeMetricFamily(
        f"{_PREFIX}_step_seconds",
        "Time of a frame in a step, of the newest frames: it waits for the device, is copied, and runs.",
        labels=(*names, "part", "quantile"),
    )
    for stage in snapshot.stages:
        for step in stage.steps:
            labels = (stage.name, step.name, step.device)
            busy.add_metric(labels, step.busy_s)
            for part, durations in (("wait", step.wait_s), ("copy", step.copy_s), ("run", step.run_s)):
                _add_quantiles(times, (*labels, part), durations)
    yield from (busy, times)


def _add_quantiles(family: Any, labels: tuple[str, ...], durations: Percentiles) -> None:
    for name, seconds in asdict(durations).items():
        family.add_metric((*labels, _QUANTILES[name]), seconds)
