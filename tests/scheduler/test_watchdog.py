"""Stages that do not come back in time."""

import functools
import gc
import logging
import math
import pickle
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed, PipelineError, StageTimeout
from pipeline.scheduler import Pipeline, Supervision, Trace
from pipeline.system.watchdog import TimedRun, Watchdog
from tests.scheduler.conftest import wait_until
from tests.support.alive import collect

LIMIT = 0.05


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def hang_on(number: int, gate: Any) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    def run(x: np.ndarray) -> Sequence[np.ndarray]:
        return gate(x) if x[0] == number else [x]

    return run


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_frame_fails_and_the_stage_goes_on_with_a_new_device(
    chain: Callable[..., Plan], functions: Any, gate: Any, caplog: pytest.LogCaptureFixture, replicas: int
) -> None:
    plan = chain(3, replicas={"a": 1, "b": replicas, "c": 1})
    codes = [lambda x: [x], hang_on(1, gate), lambda x: [x]]
    trace = Trace()
    with (
        caplog.at_level(logging.WARNING),
        Pipeline(plan, codes, create=functions, stage_timeout={"b": LIMIT}, trace=trace) as running,
    ):
        futures = [running.submit(frame(number)) for number in range(6)]
        error = futures[1].exception(30)
        assert isinstance(error, StageTimeout)
        assert (error.stage, error.device, error.frame) == ("b", "d", 1)
        assert error.seconds >= LIMIT
        assert "stage 'b' on device 'd' has been running for 0." in str(error)
        assert "s on frame 1" in caplog.text
        assert [future.result(30)[0] for future in futures if future is not futures[1]] == [0, 2, 3, 4, 5]
        stage = running.statistics().stages[1]
        assert (stage.restarts, stage.failed, stage.frames_out) == (1, 1, 5)
        gate.open.set()
    openings = [what for what, _ in functions.log]
    assert openings.count("open") == openings.count("close") == 3 + replicas - 1 + 1
    (failed_frames,) = (event for event in trace.events() if event.kind == "failed")
    assert (failed_frames.stage, failed_frames.frame) == ("b", 1)
    assert failed_frames.end - failed_frames.start >= LIMIT


def test_a_late_result_is_ignored_and_its_thread_ends(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    with Pipeline(chain(1), [hang_on(0, gate)], create=functions, stage_timeout=LIMIT) as running:
        first = running.submit(frame(0))
        assert isinstance(first.exception(30), StageTimeout)
        gate.open.set()
        wait_until(lambda: ("close", "d") in functions.log)
        assert [running.submit(frame(number)).result(30)[0] for number in (1, 2)] == [1, 2]
        statistics = running.statistics()
    assert (statistics.delivered, statistics.failed) == (2, 1)
    assert (statistics.stages[0].frames_out, statistics.stages[0].failed) == (2, 1)


def test_two_stages_that_hang_at_once_do_not_wait_for_each_other(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """The frame that one has failed on must pass a full channel in front of the other, which hangs too."""
    plan = chain(2, queue_depth=1, in_flight=10)
    with Pipeline(plan, [hang_on(3, gate), hang_on(0, gate)], create=functions, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(6)]
        assert not wait(futures, 30).not_done
        assert [type(future.exception()).__name__ for future in futures] == [
            "StageTimeout", "NoneType", "NoneType", "StageTimeout", "NoneType", "NoneType",
        ]  # fmt: skip
        gate.open.set()


def test_shared_cores_are_free_again(graph: Callable[..., Plan], functions: Any, gate: Any) -> None:
    plan = graph({"a": ["x"], "b": ["a"]}, outputs=["b"], cores=(0,))
    with Pipeline(plan, [hang_on(0, gate), lambda x: [x]], create=functions, stage_timeout={"a": LIMIT}) as running:
        assert isinstance(running.submit(frame(0)).exception(30), StageTimeout)
        assert running.submit(frame(1)).result(30)[0] == 1
        gate.open.set()


def test_waiting_for_a_core_or_a_place_is_not_running(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    plan = chain(2, queue_depth=1, cores=(0,))
    with Pipeline(plan, [lambda x: [x], gate], create=functions, stage_timeout={"a": LIMIT}) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        gate.wait_entered()
        time.sleep(3 * LIMIT)
        gate.open.set()
        assert [future.result(30)[0] for future in futures] == [0, 1, 2]


def test_the_pipeline_fails_if_it_shall(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    codes = [hang_on(1, gate), lambda x: [x]]
    running = Pipeline(chain(2), codes, create=functions, stage_timeout=LIMIT, on_timeout="fail-pipeline")
    futures = [running.submit(frame(number)) for number in range(3)]
    error = futures[1].exception(30)
    assert isinstance(error, StageTimeout)
    assert not wait(futures, 30).not_done
    assert futures[2].cancelled() or isinstance(futures[2].exception(), PipelineClosed)
    assert running.error is error
    with pytest.raises(PipelineClosed, match="has stopped: stage 'a' on device 'd' has been running"):
        running.submit(frame(3))
    with pytest.warns(ResourceWarning, match="still busy in their device: 'a'"):
        running.close()
    gate.open.set()


def test_a_device_that_cannot_be_opened_again_ends_the_pipeline(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    runtimes: list[Any] = []

    def create(device: Device) -> Any:
        runtimes.append(functions(device))
        if len(runtimes) > 1:
            runtimes[-1].open = lambda cores: (_ for _ in ()).throw(OSError("gone"))
        return runtimes[-1]

    with Pipeline(chain(1), [gate], create=create, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        assert not wait(futures, 30).not_done
        assert isinstance(futures[0].exception(), StageTimeout)
        assert isinstance(running.error, PipelineError)
        assert "cannot start: OSError: gone" in str(running.error)
        gate.open.set()


def open_again(reopen: Callable[[], object], open_device: Callable[[Any], None], cores: Any) -> None:
    reopen()
    open_device(cores)


def make_slow_devices(functions: Any, reopen: Callable[[], object], workers: int) -> Callable[[Device], Any]:
    """Return what makes devices; those after the first `workers` do `reopen` before they are open."""
    runtimes: list[Any] = []

    def create(device: Device) -> Any:
        runtime = functions(device)
        runtimes.append(runtime)
        runtime.opening_s = 0.1
        if len(runtimes) > workers:
            runtime.open = functools.partial(open_again, reopen, runtime.open)
        return runtime

    return create


def test_a_frame_does_not_wait_for_the_device_that_is_opened_again(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """Its StageTimeout came when the device was there: on a board that hangs, after 30 s."""
    opening = threading.Event()

    def create(device: Device) -> Any:
        runtime = reopen(device)
        runtime.opening_s = 60.0
        return runtime

    reopen = make_slow_devices(functions, lambda: opening.wait(30), 1)
    with Pipeline(chain(1), [hang_on(0, gate)], create=create, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(2)]
        assert isinstance(futures[0].exception(30), StageTimeout)
        assert not opening.is_set()
        opening.set()
        assert futures[1].result(30)[0] == 1
        gate.open.set()


def gone() -> None:
    raise OSError("gone")


def fails(_: Any) -> Callable[[], None]:
    return gone


NOT_OPENED = pytest.mark.parametrize(
    ("reopen", "message"),
    [(fails, "cannot start: OSError: gone"), (lambda gate: gate, r"it was not opened again within 0\.\d+ s")],
    ids=["fails", "hangs"],
)


@NOT_OPENED
def test_a_device_that_is_not_opened_again_ends_a_pipeline_whose_stage_has_no_other(
    chain: Callable[..., Plan], functions: Any, gate: Any, reopen: Any, message: str
) -> None:
    create = make_slow_devices(functions, reopen(gate), 1)
    with Pipeline(chain(1), [hang_on(1, gate)], create=create, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        assert not wait(futures, 30).not_done
        assert isinstance(futures[1].exception(), StageTimeout)
        assert re.search(message, str(running.error))
        gate.open.set()


@NOT_OPENED
def test_a_stage_goes_on_with_its_other_replicas(
    chain: Callable[..., Plan], functions: Any, gate: Any, reopen: Any, message: str
) -> None:
    lost_device: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(lost_device)
    handler.setLevel(logging.ERROR)
    logging.getLogger("pipeline.scheduler").addHandler(handler)
    create, plan = make_slow_devices(functions, reopen(gate), 2), chain(1, replicas=2, in_flight=8)
    with Pipeline(plan, [hang_on(1, gate)], create=create, stage_timeout=LIMIT) as running:
        futures = [running.submit(frame(number)) for number in range(8)]
        assert isinstance(futures[1].exception(30), StageTimeout)
        assert [future.result(30)[0] for future in futures if future is not futures[1]] == [0, *range(2, 8)]
        text = lost_device.get(timeout=30).getMessage()
        assert re.search(message + "; the stage goes on with 1 other replica$", text)
        assert running.submit(frame(9)).result(30)[0] == 9
        gate.open.set()
    logging.getLogger("pipeline.scheduler").removeHandler(handler)


def test_close_waits_for_the_new_worker_and_not_for_the_old(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    running = Pipeline(chain(1), [hang_on(0, gate)], create=functions, stage_timeout=LIMIT)
    futures = [running.submit(frame(number)) for number in range(3)]
    with pytest.warns(ResourceWarning, match="still busy"):
        running.close()
    assert isinstance(futures[0].exception(0), StageTimeout)
    assert [future.result(0)[0] for future in futures[1:]] == [1, 2]
    gate.open.set()


def count_runs() -> int:
    collect()
    return sum(type(value) is TimedRun for value in gc.get_objects())


def test_many_quick_runs_are_not_disturbed(chain: Callable[..., Plan]) -> None:
    run_count = count_runs()
    with Pipeline(chain(3), stage_timeout=30.0) as running:
        for number, result in enumerate(running.map(frame(number) for number in range(500))):
            assert result[0] == number
        wait_until(lambda: count_runs() <= run_count)


def test_without_a_limit_there_is_no_watchdog(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)):
        assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
    with Pipeline(chain(1), stage_timeout=1.0):
        assert [thread for thread in threading.enumerate() if thread.name == "watchdog"]


def test_an_idle_watchdog_sleeps() -> None:
    expiries: list[TimedRun] = []
    watchdog = Watchdog()
    watchdog.start()
    run = watchdog.begin(0.01, expiries.append)
    assert watchdog.end(run)
    wait_until(lambda: time.monotonic() > run.deadline_s and watchdog.wake_at == math.inf)
    watchdog.stop()
    watchdog.join()
    assert not expiries


def test_an_idle_watchdog_keeps_nothing() -> None:
    """It kept the newest run that it had looked at, and so the frame of that run, until the next one."""
    run_count = count_runs()
    watchdog, expiry = Watchdog(), threading.Event()
    watchdog.start()
    watchdog.begin(0.001, lambda _: expiry.set())
    assert expiry.wait(30)
    wait_until(lambda: count_runs() <= run_count)
    watchdog.stop()
    watchdog.join()


def test_stop_on_error_counts_time_outs(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    options: dict[str, Any] = {"stage_timeout": LIMIT, "on_error": "stop"}
    with Pipeline(chain(1), [gate], create=functions, **options) as running:
        futures = [running.submit(frame(number)) for number in range(3)]
        assert not wait(futures, 30).not_done
        assert futures[0].exception() is running.error
        assert isinstance(running.error, StageTimeout)
        gate.open.set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error is 'ignore'; it must be 'skip' or 'stop'"),
        ({"on_timeout": "retry"}, "on_timeout is 'retry'"),
        ({"timeouts": 0.0}, "stage_timeout is 0.0; it must be a time in seconds, above 0"),
        ({"timeouts": {"a": -1.0}}, r"stage_timeout\['a'\] is -1.0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Supervision(**options)


def test_a_limit_for_an_unknown_stage_is_refused(chain: Callable[..., Plan]) -> None:
    with pytest.raises(ValueError, match="a limit for the stage 'aa'; there are a, b; did you mean 'a'"):
        Pipeline(chain(2), stage_timeout={"aa": 1.0})


def test_the_error_crosses_process_borders() -> None:
    error = pickle.loads(pickle.dumps(StageTimeout("a", "d", 3, 1.5)))
    assert (error.stage, error.device, error.frame, error.seconds) == ("a", "d", 3, 1.5)
