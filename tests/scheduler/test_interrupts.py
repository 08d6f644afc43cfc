"""Ctrl-C at any step of a call costs the frame that was being submitted, and nothing else."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import LIMIT, Functions, Gate
from tests.support.interrupt_at import InterruptAt

X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def interrupts_raise() -> Iterator[None]:
    """As in a program that was started from a terminal."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of devices that an abrupt close has left busy
        yield
    signal.signal(signal.SIGINT, handler)


@dataclass
class Situation:
    """A pipeline before the call that is interrupted.

    Attributes
    ----------
    running : Pipeline
    gate : Gate
        What holds its frames.
    futures : list of Future
        Of frames that are in.
    """

    running: Pipeline
    gate: Gate
    futures: list[Future[Any]] = field(default_factory=list)


def start(plan: Plan, frames: int, **options: Any) -> Situation:
    """Start a pipeline whose first stages hold a frame, with others behind it."""
    gate = Gate()
    codes = [gate if stage.inputs[0].name == "x" else (lambda *arrays: arrays[:1]) for stage in plan.stages]
    running = Pipeline(plan, codes, create=Functions(), **options)
    situation = Situation(running, gate)
    for number in range(frames):
        situation.futures.append(running.submit(X, timeout=LIMIT))
        if not number:
            gate.wait_entered()
    return situation


def open_soon(situation: Situation) -> Situation:
    """Let the gate open soon, in a thread of its own."""
    threading.Timer(0.01, situation.gate.open.set).start()
    return situation


def check(situation: Situation) -> None:
    """Check that all frames end, new ones go through, the books balance, and close returns."""
    situation.gate.open.set()
    running = situation.running
    if not running.closed:
        running.resume()  # which was not called, if its call was interrupted
        for _ in range(3):
            future = running.submit(X, timeout=LIMIT)
            if running.statistics().dropped:
                continue
            np.testing.assert_array_equal(future.result(LIMIT), X)
        running.drain(timeout=LIMIT)
    closer = threading.Thread(target=running.close, daemon=True)
    closer.start()
    closer.join(LIMIT)
    assert not closer.is_alive(), "close never returned"
    assert not wait(situation.futures, LIMIT).not_done
    statistics = running.statistics()
    assert statistics.in_flight == 0
    end_count = statistics.delivered + statistics.failed + statistics.cancelled
    assert statistics.submitted == end_count + sum(statistics.dropped.values())


def exhaust(make: Callable[[], Situation], call: Callable[[Situation], object], step: int = 1) -> int:
    """Interrupt the call in front of each of its lines, in a fresh pipeline each time; return how many there were."""
    number = 1
    while True:
        situation = make()
        interrupt = InterruptAt(number)
        interruptions = False
        try:
            with interrupt:
                call(situation)
        except KeyboardInterrupt:
            interruptions = True
        assert interruptions == interrupt.sent, "an interrupt was swallowed"
        check(situation)
        if not interrupt.sent:
            return number
        number += step


def two_first_stages(graph: Callable[..., Plan]) -> Plan:
    return graph({"a": ["x"], "b": ["x"], "c": ["a", "b"]}, outputs=["c"])


def test_submitting_to_a_pipeline_with_room(chain: Callable[..., Plan]) -> None:
    def submit(situation: Situation) -> None:
        situation.futures.append(situation.running.submit(X))

    assert exhaust(lambda: start(chain(2), 1), submit) > 50


def test_submitting_to_several_first_stages(graph: Callable[..., Plan]) -> None:
    def submit(situation: Situation) -> None:
        situation.futures.append(situation.running.submit(X))

    assert exhaust(lambda: start(two_first_stages(graph), 1), submit, 2) > 50


@pytest.mark.parametrize("admission", ["latest", "drop-oldest"])
def test_submitting_a_frame_that_takes_the_place_of_another(chain: Callable[..., Plan], admission: str) -> None:
    def submit(situation: Situation) -> None:
        situation.futures.append(situation.running.submit(X))

    assert exhaust(lambda: start(chain(1, queue_depth=1), 4, admission=admission), submit, 2) > 100


def test_waiting_for_a_place(chain: Callable[..., Plan]) -> None:
    def submit(situation: Situation) -> None:
        situation.futures.append(situation.running.submit(X))

    exhaust(lambda: open_soon(start(chain(1, queue_depth=1), 2)), submit, 2)


def pause(situation: Situation) -> None:
    situation.running.pause()
    situation.running.resume()


def run(situation: Situation) -> None:
    situation.running.set_input("x", X)
    situation.running.run()


CALLS: dict[str, Callable[[Situation], object]] = {
    "cancel": lambda situation: situation.futures[-1].cancel(),
    "flush": lambda situation: situation.running.flush(),
    "pause": pause,
    "close": lambda situation: situation.running.close(timeout=0),
    "abrupt close": lambda situation: situation.running.close(drain=False),
    "result": lambda situation: situation.futures[0].result(LIMIT),
    "drain": lambda situation: situation.running.drain(timeout=LIMIT),
    "run": run,
}


def situation_for(call: str, chain: Callable[..., Plan]) -> Situation:
    situation = start(chain(2), 2)
    return open_soon(situation) if call in ("result", "drain", "close", "abrupt close") else situation


@pytest.mark.parametrize("call", CALLS)
def test_other_calls(chain: Callable[..., Plan], call: str) -> None:
    exhaust(lambda: situation_for(call, chain), CALLS[call], 5)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_each_line_of_other_calls(chain: Callable[..., Plan], call: str) -> None:
    exhaust(lambda: situation_for(call, chain), CALLS[call])


def test_a_callback_can_be_interrupted_in_the_middle_of_a_change(chain: Callable[..., Plan]) -> None:
    """The change goes on, and the interrupt comes behind it."""
    situation = start(chain(1), 3)
    call_log: list[Any] = []
    situation.futures[1].add_done_callback(lambda _: signal.raise_signal(signal.SIGINT))
    situation.futures[1].add_done_callback(call_log.append)
    with pytest.raises(KeyboardInterrupt):
        situation.running.flush()
    assert call_log == [situation.futures[1]]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    check(situation)


def test_two_interrupts_in_the_middle_of_a_change_leave_none_for_later(chain: Callable[..., Plan]) -> None:
    """The second one was raised by the next call, such as the close behind it, which then closed nothing."""
    situation = open_soon(start(chain(1, queue_depth=1), 3, admission="latest"))
    for _ in range(2):
        situation.futures[1].add_done_callback(lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        situation.running.flush()
    situation.running.pause()
    situation.running.resume()
    check(situation)


def test_a_handler_may_close_the_pipeline(chain: Callable[..., Plan]) -> None:
    def handler(*_: Any) -> None:
        situations[-1].running.close(timeout=0)

    def make() -> Situation:
        situations.append(open_soon(start(chain(1, queue_depth=1), 3, admission="latest")))
        return situations[-1]

    situations: list[Situation] = []
    signal.signal(signal.SIGINT, handler)
    for number in range(1, 200, 9):
        situation = make()
        with InterruptAt(number), contextlib.suppress(PipelineClosed):
            situation.futures.append(situation.running.submit(X))
        check(situation)
