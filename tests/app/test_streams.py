"""Several streams into one model: fair, each in its own order, with its own books."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.app.application import App
from pipeline.app.node_worker import FairQueue
from pipeline.app.nodes import Model, Node, SinkNode, Stream
from pipeline.errors import SourceLost
from pipeline.io.sinks.base import Callback
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources.base import FrameSource
from tests.support import app_models

NAMES = ("a", "b", "c", "d")


def cameras(**nodes: Node) -> App:
    """Return an application of four streams into one model."""
    streams = {name: Stream(source="-") for name in NAMES}
    return App(streams, {"squares": Model(file="-"), **nodes})


def recording(count: int) -> app_models.Scenes:
    """Return a source of so many pictures."""
    return app_models.Scenes([app_models.scene([(number % 8, 0, 1)]) for number in range(count)])


class Stalling(FrameSource):
    """Frames until the middle, where it waits to be told."""

    owns_memory = True

    def __init__(self, count: int) -> None:
        self._count = count
        self.stalled, self.go_on = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[SourceFrame]:
        for number in range(self._count):
            if number == self._count // 2:
                self.stalled.set()
                self.go_on.wait()
            yield app_models.frame(number, app_models.scene([(0, 0, 1)]))


def test_four_recordings_are_delivered_whole_and_in_order() -> None:
    ended = list[AppFrame]()
    app = pipeline.load_app(
        cameras(),
        sources={name: recording(50) for name in NAMES},
        bundles={"squares": app_models.detector()},
        on_frame=ended.append,
    )
    with app:
        books = app.run()
    for name in NAMES:
        assert [frame.index for frame in ended if frame.stream == name] == list(range(50))
        assert (books[name].taken, books[name].delivered) == (50, 50)


def test_streams_that_wait_for_one_model_have_equal_shares() -> None:
    started, order = threading.Event(), list[str]()

    def slow(picture: np.ndarray) -> np.ndarray:
        started.wait()
        time.sleep(0.001)
        return app_models.find_squares(picture)

    app = pipeline.load_app(
        cameras(),
        sources={name: recording(400) for name in NAMES},
        bundles={"squares": app_models.detector(slow)},
        on_frame=lambda frame: order.append(frame.stream),
    )
    with app:
        threading.Timer(0.2, started.set).start()
        app.run()
    # While all four have frames: the first three quarters.
    counts = Counter(order[:1200])
    assert max(counts.values()) - min(counts.values()) <= 0.05 * 300


def test_a_stream_that_stalls_holds_up_no_other_and_comes_back() -> None:
    stalling, others = Stalling(40), threading.Semaphore(0)
    ended = list[AppFrame]()

    def note(frame: AppFrame) -> None:
        ended.append(frame)
        if frame.stream != "a":
            others.release()

    app = pipeline.load_app(
        cameras(),
        sources={"a": stalling, **{name: recording(100) for name in NAMES[1:]}},
        bundles={"squares": app_models.detector()},
        on_frame=note,
    )

    def release() -> None:
        stalling.stalled.wait()
        for _ in range(300):
            others.acquire()
        stalling.go_on.set()

    threading.Thread(target=release, daemon=True).start()
    with app:
        books = app.run()
    assert [frame.index for frame in ended if frame.stream == "a"] == list(range(40))
    assert all(book.delivered == book.taken for book in books.values())


def test_a_live_stream_drops_what_finds_no_place_and_counts_it() -> None:
    def slow(picture: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return app_models.find_squares(picture)

    source = app_models.Scenes([app_models.scene([(0, 0, 1)])] * 200, fps=500)
    app = App({"a": Stream(source="-", in_flight=2)}, {"squares": Model(file="-")})
    running = pipeline.load_app(app, sources={"a": source}, bundles={"squares": app_models.detector(slow)})
    with running:
        book = running.run()["a"]
    assert book.taken == 200
    assert book.dropped > 0
    assert book.delivered + book.dropped == 200


def test_a_source_that_is_lost_ends_its_own_stream_and_is_told_in_the_end() -> None:
    class Lost(Stalling):
        def __iter__(self) -> Iterator[SourceFrame]:
            yield app_models.frame(0, app_models.scene([]))
            raise SourceLost("the camera is gone")

    app = pipeline.load_app(
        cameras(),
        sources={"a": Lost(1), **{name: recording(30) for name in NAMES[1:]}},
        bundles={"squares": app_models.detector()},
    )
    with app, pytest.raises(SourceLost, match="the camera is gone"):
        app.run()
    books = app.statistics()
    assert [books[name].delivered for name in NAMES] == [1, 30, 30, 30]


def test_a_sink_of_all_streams_says_whose_each_frame_is() -> None:
    results = list[StreamFrame]()
    app = pipeline.load_app(
        cameras(out=SinkNode(to="-", reads=("squares",))),
        sources={name: recording(5) for name in NAMES},
        bundles={"squares": app_models.detector()},
        sinks={"out": Callback(results.append)},
    )
    with app:
        app.run()
    assert Counter(result.stream for result in results) == dict.fromkeys(NAMES, 5)


def test_a_queue_serves_the_stream_that_was_served_least() -> None:
    queue = FairQueue[str]()
    queue.put("late", 0.0, "late 0")
    for number in range(8):
        queue.put("busy", 1.0 + number, f"busy {number}")
    assert [queue.get() for _ in range(6)] == ["late 0", *(f"busy {number}" for number in range(5))]
    # Away for long: no turns for those that it missed.
    for number in range(1, 4):
        queue.put("late", 9.0 + number, f"late {number}")
    assert [queue.get() for _ in range(6)] == ["late 1", "busy 5", "late 2", "busy 6", "late 3", "busy 7"]
    queue.close()
    assert queue.get() is None
