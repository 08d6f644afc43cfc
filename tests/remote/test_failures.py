"""Servers that die, hang and come back in the middle of a stream: the books balance, and the stream goes on."""

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.errors import DeviceLost, PipelineError, StageError
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.remote.device import RemoteRuntime
from pipeline.scheduler import Pipeline
from tests.remote.conftest import LIMIT, Child, frame, plan
from tests.support.forked import PYTHON_WARNS, in_child

QUICK = "?timeout=0.4&patience=20"
"""A server that hangs is found out soon, and one that is away is waited for, however busy this machine is."""


class Stream:
    """Frames on their way, and what became of them, in the order in which they ended."""

    def __init__(self, running: Pipeline) -> None:
        self._running = running
        self.futures: list[Any] = []
        self.outcomes: list[int] = []

    def send(self, count: int) -> Sequence[Any]:
        first = len(self.futures)
        for number in range(first, first + count):
            future = self._running.submit(frame(number))
            future.add_done_callback(lambda future: self.outcomes.append(future.sequence))  # type: ignore[attr-defined]
            self.futures.append(future)
        return self.futures[first:]

    def check(self) -> tuple[int, int]:
        """Compare every frame with what it must be, and return how many were delivered and have failed."""
        assert not wait(self.futures, LIMIT).not_done
        self._running.drain(timeout=LIMIT)
        assert self.outcomes == list(range(len(self.futures)))
        failures = 0
        for number, future in enumerate(self.futures):
            if (error := future.exception()) is None:
                assert np.array_equal(future.result(), frame(number))
            else:
                assert isinstance(error, StageError), error
                assert isinstance(error.__cause__, DeviceLost), error.__cause__
                failures += 1
        statistics = self._running.statistics()
        assert (statistics.submitted, statistics.failed) == (len(self.futures), failures)
        assert statistics.delivered + statistics.failed == statistics.submitted
        return statistics.delivered, failures


def stream(server: Child, count: int, disturb: Callable[[], None], *, replicas: int = 2) -> tuple[int, int]:
    """Stream frames, disturb the server when a third has been sent, and send the last third when it is back."""
    with Pipeline(plan(server.address("simulated", QUICK), replicas=replicas, seconds=1e-3)) as running:
        frames = Stream(running)
        disturber = threading.Thread(target=disturb)
        frames.send(count // 3)
        disturber.start()
        frames.send(count // 3)
        disturber.join()
        # Who was lost a moment ago is left alone for a while, and frames fail meanwhile.
        while frames.send(1)[0].exception(LIMIT) is not None:
            assert len(frames.futures) < 100 * count
        last_futures = frames.send(count // 3)
        assert [future.exception(LIMIT) for future in last_futures] == [None] * len(last_futures)
        return frames.check()


def restart(server: Child) -> Callable[[], None]:
    return server.restart


def hang(server: Child) -> Callable[[], None]:
    def stop_and_go_on() -> None:
        server.send(signal.SIGSTOP)
        threading.Event().wait(1.0)  # longer than its clients wait
        server.send(signal.SIGCONT)

    return stop_and_go_on


@pytest.mark.parametrize("disturbance", [restart, hang])
def test_a_server_that_is_lost_in_a_stream(server: Child, disturbance: Any) -> None:
    results, _ = stream(server, 300, disturbance(server))
    assert results >= 200


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", [restart, hang])
def test_a_server_that_is_lost_in_a_long_stream(server: Child, disturbance: Any) -> None:
    def disturb_often() -> None:
        for _ in range(3):
            disturbance(server)()

    results, failures = stream(server, 10_000, disturb_often)
    assert results + failures >= 10_000


def test_the_error_names_the_address_and_the_reason(server: Child) -> None:
    with Pipeline(plan(server.address("null", "?timeout=0.3&patience=0"))) as running:
        assert running.submit(frame(0)).result(LIMIT)[0] == 0
        server.send(signal.SIGSTOP)
        hung = running.submit(frame(1)).exception(LIMIT)
        assert "stage 'far' on device 'there' failed on frame 1: DeviceLost" in str(hung)
        assert f"remote://127.0.0.1:{server.port}/null: the server has given no sign of life for 0.3 s" in str(hung)
        server.kill()
        while "no sign of life" in str(is_gone := running.submit(frame(2)).exception(LIMIT)):
            pass
        assert "nothing listens there" in str(is_gone)


def test_a_server_that_was_restarted_between_two_frames_costs_none(server: Child) -> None:
    with Pipeline(plan(server.address("null", QUICK), replicas=3)) as running:
        assert [running.submit(frame(number)).result(LIMIT)[0] for number in range(6)] == list(range(6))
        server.restart()
        assert [running.submit(frame(number)).result(LIMIT)[0] for number in range(6)] == list(range(6))
        assert running.statistics().failed == 0


def test_another_server_or_this_machine_takes_over(serve: Callable[..., Child]) -> None:
    first, second = serve(), serve()
    addresses = f"{first.address('null', '?timeout=0.4')} {second.address()} local:null"
    with Pipeline(plan(addresses, replicas=2)) as running:
        frames = Stream(running)
        frames.send(50)
        first.kill()
        frames.send(50)
        second.kill()
        frames.send(50)
        assert frames.check() == (150, 0)


def test_the_preferred_server_is_taken_again_when_it_is_back(server: Child) -> None:
    runtimes: list[RemoteRuntime] = []

    def create(device: Device) -> DeviceRuntime:
        runtime = devices.create(device)
        if isinstance(runtime, RemoteRuntime):
            runtimes.append(runtime)
        return runtime

    with Pipeline(plan(f"{server.address()} local:null"), create=create) as running:
        server.kill()
        assert running.submit(frame(0)).result(LIMIT)[0] == 0
        assert not any(runtime.sessions for runtime in runtimes)
        server.start()
        while not any(runtime.sessions for runtime in runtimes):
            assert running.submit(frame(1)).result(LIMIT)[0] == 1


def test_without_a_server_the_pipeline_does_not_start(server: Child) -> None:
    server.kill()
    with pytest.raises(DeviceLost, match="nothing listens there; start"):
        Pipeline(plan(server.address("null", "?patience=0")))
    with pytest.raises(PipelineError, match="has no address; give it one like remote://"):
        Pipeline(plan(""))


def test_a_server_may_start_after_its_client(server: Child) -> None:
    server.kill()
    starter = threading.Timer(0.3, server.start)
    starter.start()
    with Pipeline(plan(server.address("null", "?patience=30"))) as running:
        assert running.submit(frame(0)).result(LIMIT)[0] == 0
    starter.join()


def test_ctrl_c_ends_a_server_with_clients(server: Child, tmp_path: Path) -> None:
    with Pipeline(plan(server.address("null", "?patience=0"))) as running:
        assert running.submit(frame(0)).result(LIMIT)[0] == 0
        server.send(signal.SIGTERM)
        assert server.process.wait(LIMIT) == 130
        assert isinstance(running.submit(frame(1)).exception(LIMIT), StageError)


@pytest.mark.filterwarnings(PYTHON_WARNS)
def test_a_forked_process_leaves_the_session_alone(server: Child) -> None:
    with contextlib.ExitStack() as stack:
        pipelines = [stack.enter_context(Pipeline(plan(server.address())))]

        def work() -> None:
            stack.pop_all()  # nobody has the pipeline any more
            pipelines.pop().close()
            gc.collect()

        assert np.array_equal(pipelines[0].submit(frame(1)).result(LIMIT), frame(1))
        assert in_child(work) == ""
        assert np.array_equal(pipelines[0].submit(frame(2)).result(LIMIT), frame(2))
