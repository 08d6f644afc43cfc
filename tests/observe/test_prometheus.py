from __future__ import annotations

import http.client
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import InputError, MissingExtra
from pipeline.observe import prometheus
from pipeline.scheduler import Pipeline
from tests.support.alive import collect
from tests.support.listening import listening_addresses
from tests.support.step_plans import alternating_plan

parser = pytest.importorskip("prometheus_client.parser")
X = np.zeros(4, np.float32)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def running() -> Iterator[Pipeline]:
    x, a, b = (TensorSpec(name, (4,)) for name in "xab")
    stages = (StagePlan("a", "device", (x,), (a,), seconds=0.001), StagePlan("b", "device", (a,), (b,), seconds=0.002))
    with Pipeline(Plan("two", "", Board("board", (Device("device", "simulated"),)), (x,), (b,), stages)) as running:
        yield running


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = list(parser.text_string_to_metric_families(answer.read().decode()))
    assert all(family.documentation for family in families)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"soc_pipeline_{name}", frozenset(labels.items())]


def test_what_is_served_is_what_the_statistics_say(running: Pipeline) -> None:
    with prometheus.serve(running) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        first_samples = scrape(server.url)
        list(running.map([X] * 10))
        samples, statistics = scrape(server.url), running.statistics()
    assert value(first_samples, "frames_submitted_total") == 0
    assert value(samples, "frames_submitted_total") == 10
    assert value(samples, "frames_ended_total", end="delivered", reason="") == 10
    assert value(samples, "frames_ended_total", end="failed", reason="") == 0
    assert value(samples, "frames_in_flight") == 0
    assert value(samples, "latency_seconds", quantile="0.5") == statistics.latency_s.p50
    for stage in statistics.stages:
        labels = {"stage": stage.name, "device": "device"}
        assert value(samples, "stage_frames_in_total", **labels) == 10
        assert value(samples, "stage_frames_out_total", end="ran", **labels) == 10
        assert value(samples, "stage_queue_length", **labels) == 0
        assert value(samples, "stage_busy_seconds_total", **labels) == stage.busy_s > 0
        for part, durations in (("wait", stage.wait_s), ("copy", stage.copy_s), ("run", stage.run_s)):
            for quantile, seconds in (("0.5", durations.p50), ("0.95", durations.p95), ("0.99", durations.p99)):
                assert value(samples, "stage_seconds", part=part, quantile=quantile, **labels) == seconds


def test_dropped_frames_are_counted_by_reason(running: Pipeline) -> None:
    import dataclasses

    statistics = dataclasses.replace(running.statistics(), dropped={"late": 3, "newer": 4})
    with prometheus.MetricsServer(lambda: statistics, 0) as server:
        samples = scrape(server.url)
    assert value(samples, "frames_ended_total", end="dropped", reason="late") == 3
    assert value(samples, "frames_ended_total", end="dropped", reason="newer") == 4


def test_statistics_are_read_only_when_somebody_asks(running: Pipeline) -> None:
    read = mock.Mock(wraps=running.statistics)
    with prometheus.MetricsServer(read, 0) as server:
        assert read.call_count == 0
        scrape(server.url)
        assert read.call_count == 1


def test_it_listens_on_loopback_only_and_stops_with_the_block(running: Pipeline) -> None:
    thread_count = threading.active_count()
    with prometheus.serve(running) as server:
        assert listening_addresses(server.port) == {"127.0.0.1"}
    assert threading.active_count() == thread_count
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=30)
    server.close()


def test_the_last_statistics_are_served_after_the_pipeline(running: Pipeline) -> None:
    list(running.map([X] * 3))
    with prometheus.serve(running) as server:
        running.close()
        assert value(scrape(server.url), "frames_ended_total", end="delivered", reason="") == 3


def test_two_pipelines_are_served_apart(running: Pipeline) -> None:
    with prometheus.serve(running) as first, prometheus.serve(running) as second:
        assert first.port != second.port
        assert scrape(first.url).keys() == scrape(second.url).keys()


def test_a_port_in_use_is_one_clear_error(running: Pipeline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: another program uses it; give another, or 0"):
            prometheus.serve(running, port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(running: Pipeline, port: int) -> None:
    with pytest.raises(InputError, match="from 1 to 65535"):
        prometheus.serve(running, port)


def test_without_the_package_the_extra_is_named(running: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match="pip install 'prometheus-client<"):
        prometheus.serve(running)


def test_a_forgotten_server_warns_and_stops(running: Pipeline) -> None:
    server: Any = prometheus.serve(running)
    port = server.port
    with pytest.warns(ResourceWarning, match=f"127.0.0.1:{port}/metrics was not closed"):  # noqa: PT031 - both forget it
        del server
        collect()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)


def ask(server: prometheus.MetricsServer, host: str | None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("GET", "/metrics", skip_host=True)
    if host is not None:
        connection.putheader("Host", host.format(port=server.port))
    connection.endheaders()
    return connection.getresponse()


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:{port}", "127.0.0.1.example.org", "localhost.evil", "", None]
)
def test_a_name_that_is_not_this_machines_is_refused(running: Pipeline, host: str | None) -> None:
    read = mock.Mock(wraps=running.statistics)
    with prometheus.MetricsServer(read, 0) as server, ask(server, host) as answer:
        assert answer.status == 403
        assert b"http://127.0.0.1" in answer.read()
    assert read.call_count == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9000", "127.0.0.1:{port}"])
def test_this_machines_names_are_served_also_through_a_tunnel(running: Pipeline, host: str) -> None:
    with prometheus.serve(running) as server, ask(server, host) as answer:
        assert answer.status == 200
        assert b"soc_pipeline" in answer.read()


def test_silent_clients_have_few_threads_and_keep_nobody_out(running: Pipeline) -> None:
    thread_count = threading.active_count()
    with prometheus.MetricsServer(running.statistics, 0, connections=4) as server, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)) for _ in range(12)]
        scrape(server.url)
        for cut in silent[:8]:
            assert cut.recv(1) == b"", "the oldest are closed for those who come"
        assert threading.active_count() <= thread_count + 1 + 4
        scrape(server.url)
    assert threading.active_count() == thread_count, "who is still silent does not outlive the server"


def test_a_silent_client_is_let_go(running: Pipeline) -> None:
    with (
        prometheus.MetricsServer(running.statistics, 0, idle_s=0.05) as server,
        socket.create_connection(("127.0.0.1", server.port), 60) as silent,
    ):
        silent.sendall(b"GET /met")
        assert silent.recv(1) == b""


def test_steps_have_times_of_their_own() -> None:
    with Pipeline(alternating_plan(2, 0.001, 0.001)) as running, prometheus.serve(running) as server:
        list(running.map([X] * 10))
        samples, statistics = scrape(server.url), running.statistics()
    for step in statistics.stages[0].steps:
        labels = {"stage": "stage0", "step": step.name, "device": step.device}
        assert value(samples, "step_busy_seconds_total", **labels) == step.busy_s > 0
        for part, durations in (("wait", step.wait_s), ("copy", step.copy_s), ("run", step.run_s)):
            assert value(samples, "step_seconds", part=part, quantile="0.5", **labels) == durations.p50
