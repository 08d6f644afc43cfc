"""Ctrl-C at any step of a stream ends it, and what was recorded is there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

import pipeline
from pipeline.io.sinks.base import Callback
from pipeline.io.source_frame import StreamFrame
from pipeline.io.stream import FrameStream
from pipeline.ros.bridge import Bridge, BridgeAnswer, BridgeRequest, Header
from tests.io.test_stream import Numbered, numbers
from tests.support import media
from tests.support.interrupt_at import InterruptAt

LIMIT = 30.0
FRAMES = 3


@pytest.fixture(autouse=True)
def interrupts_raise() -> Iterator[None]:
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous_handler)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """An interrupt between the start of a stream's thread and its first frame once left it waiting for ever."""
    threads = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), thread.name


def stream(number: int, *, live: bool) -> bool:
    """Stream, and interrupt that; return whether there were as many steps."""
    results: list[StreamFrame] = []
    with pipeline.load(media.identity((4,), "float32")) as running, InterruptAt(number) as interrupt:
        try:
            FrameStream(running, Numbered(FRAMES, live=live), Callback(results.append)).run()
        except KeyboardInterrupt:
            assert interrupt.sent
    statistics = running.statistics()
    assert statistics.in_flight == 0
    assert numbers(results) == list(range(len(results)))
    if not interrupt.sent:
        assert len(results) == FRAMES
    return interrupt.sent


@pytest.mark.parametrize("live", [True, False])
def test_an_interrupted_stream_ends(live: bool) -> None:
    number, step = 1, 17
    while stream(number, live=live):
        number += step
    assert number > 100


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False])
def test_a_stream_ends_whichever_step_is_interrupted(live: bool) -> None:
    number = 1
    while stream(number, live=live):
        number += 1


def test_a_node_goes_on_after_an_interrupt() -> None:
    """Whatever of a message was interrupted, those behind it are answered, and the node closes."""
    for number in range(1, 300, 11):
        answers: list[BridgeAnswer] = []
        with pipeline.load(media.identity((4,), "float32")) as running:
            frames = [frame.inputs for frame in Numbered(3)]
            node = Bridge(running, lambda inputs: BridgeRequest(Header(), inputs), answers.append)
            try:
                with InterruptAt(number):
                    node.take(frames[0])
            except KeyboardInterrupt:
                pass
            assert node.take(frames[1])
            assert node.take(frames[2])
            closer = threading.Thread(target=node.close, daemon=True)
            closer.start()
            closer.join(LIMIT)
            assert not closer.is_alive()
        assert [inputs.outputs["y"][0] for inputs in answers][-2:] == [1, 2]
