"""The neutral core: any middleware calls `take`, and answers come in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, StageError
from pipeline.ros.bridge import Bridge, BridgeAnswer, BridgeRequest, Counts, Header
from tests.support import media
from tests.support.ros.functions import bundle

NUMBERS = TensorSpec("x", (2,), "float32")


def decode(number: int | BridgeRequest) -> BridgeRequest:
    if isinstance(number, BridgeRequest):
        return number
    if number < 0:
        raise InputError("below zero")
    return BridgeRequest(Header(number * 10**9 + 7, f"frame {number}"), np.full(2, number, np.float32))


@contextmanager
def run_bridge(
    function: Callable[[np.ndarray], Any],
    publish: Callable[[BridgeAnswer], None],
    errors: list[Exception],
    **options: Any,
) -> Iterator[tuple[Bridge, Any]]:
    model = bundle(function, [NUMBERS], [TensorSpec("y", (2,), "float32")])
    with pipeline.load(model, **options) as running, Bridge(running, decode, publish, errors.append) as node:
        yield node, running


def test_each_message_is_answered_in_order_with_its_own_header() -> None:
    answers: list[BridgeAnswer] = []
    errors: list[Exception] = []
    with run_bridge(lambda x: x * 2, answers.append, errors) as (node, running):
        assert all(node.take(number) for number in range(300))
    assert [each.header for each in answers] == [decode(number).header for number in range(300)]
    assert [each.outputs["y"][0] for each in answers] == [2 * number for number in range(300)]
    assert node.counts() == Counts(received=300, published=300)
    assert (running.statistics().delivered, errors) == (300, [])


def test_messages_that_cannot_be_read_or_do_not_fit_are_refused_and_reported() -> None:
    answers: list[BridgeAnswer] = []
    errors: list[Exception] = []
    with run_bridge(lambda x: x, answers.append, errors) as (node, running):
        assert not node.take(-1)
        assert not node.take(BridgeRequest(Header(), np.zeros(3, np.float32)))
        assert node.take(2)
    assert [type(each) for each in errors] == [InputError, InputError]
    assert node.counts() == Counts(received=3, refused=2, published=1)
    assert running.statistics().submitted == 1


def test_a_frame_that_fails_ends_alone() -> None:
    def odd_fails(x: np.ndarray) -> np.ndarray:
        if x[0] % 2:
            raise ArithmeticError("odd")
        return x

    answers: list[BridgeAnswer] = []
    errors: list[Exception] = []
    with run_bridge(odd_fails, answers.append, errors) as (node, _):
        for number in range(6):
            node.take(number)
    assert [each.outputs["y"][0] for each in answers] == [0, 2, 4]
    assert [type(each) for each in errors] == [StageError] * 3


def test_an_answer_that_cannot_be_sent_is_counted_and_the_next_one_is_sent() -> None:
    answers: list[BridgeAnswer] = []
    errors: list[Exception] = []

    def publish(answer: BridgeAnswer) -> None:
        if answer.header.frame_id == "frame 1":
            raise ConnectionError("nobody there")
        answers.append(answer)

    with run_bridge(lambda x: x, publish, errors) as (node, _):
        for number in range(3):
            node.take(number)
    assert [each.header.frame_id for each in answers] == ["frame 0", "frame 2"]
    assert node.counts() == Counts(received=3, published=2, unpublished=1)
    assert [type(each) for each in errors] == [ConnectionError]


def test_latest_drops_what_waits_and_the_books_balance() -> None:
    gate = threading.Event()
    answers: list[BridgeAnswer] = []
    errors: list[Exception] = []

    def slow(x: np.ndarray) -> np.ndarray:
        assert gate.wait(60)
        return x

    with run_bridge(slow, answers.append, errors, admission="latest") as (node, running):
        # The line has places for more frames than are inside, and one that waits is replaced.
        for number in range(10):
            node.take(number)
        gate.set()
    statistics, counts = running.statistics(), node.counts()
    assert statistics.dropped["replaced"] > 0
    assert answers[-1].header.frame_id == "frame 9"
    assert statistics.submitted == 10 == statistics.delivered + sum(statistics.dropped.values())
    assert (counts.published, errors) == (statistics.delivered, [])


def test_nothing_piles_up_while_answers_are_not_taken() -> None:
    gate, numbers = threading.Event(), []
    errors: list[Exception] = []

    def publish(_: BridgeAnswer) -> None:
        assert gate.wait(60)

    def take_all(node: Bridge) -> None:
        for number in range(100):
            node.take(number)
            numbers.append(number)

    with run_bridge(lambda x: x, publish, errors) as (node, running):
        thread = threading.Thread(target=take_all, args=(node,))
        thread.start()
        running.drain()
        room = 2 * running.plan.frames_in_flight + 2
        assert len(numbers) <= room + 2
        gate.set()
        thread.join()
    assert node.counts() == Counts(received=100, published=100)


def test_a_closed_node_takes_nothing_and_closes_twice() -> None:
    errors: list[Exception] = []
    with run_bridge(lambda x: x, lambda _: None, errors) as (node, _):
        node.close()
        assert not node.take(1)
        node.close()
    assert node.counts() == Counts()


def test_a_message_without_a_stamp_counts_as_captured_now() -> None:
    errors: list[Exception] = []
    answers: list[BridgeAnswer] = []
    with run_bridge(lambda x: x, answers.append, errors, admission="deadline", deadline=30.0) as (node, running):
        node.take(BridgeRequest(Header(0, "f"), np.zeros(2, np.float32)))
    assert [each.header for each in answers] == [Header(0, "f")]
    assert running.statistics().delivered == 1


def test_the_example_in_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.ros import bridge as module

    assert module.__doc__ is not None
    lines = module.__doc__.partition("::\n")[2].splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines)
    assert len([line for line in lines if line.strip()]) <= 20

    class Message:
        time_ns, frame, payload = 5, "camera", bytes(480 * 640 * 3)

    class Bus:
        messages: list[Any] = []  # noqa: RUF012

        def subscribe(self, _: str, take: Callable[[Any], bool]) -> None:
            self.take = take

        def spin(self) -> None:
            self.take(Message())

        def send(self, *arguments: Any) -> None:
            self.messages.append(arguments)

    media.identity((480, 640, 3)).save(tmp_path / "model.bundle")
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "example", "exec"), {"bus": Bus()})
    assert Bus.messages == [("results/y", bytes(480 * 640 * 3), 5, "camera")]
