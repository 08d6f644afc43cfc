"""Storms: failures, hangs, drops, swaps and an early end; each frame and crop has one end, and its own results."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.app.application import App
from pipeline.app.nodes import Model, SinkNode, Stream, Track
from pipeline.errors import PipelineClosed
from pipeline.io.results import Detections
from pipeline.io.sinks.base import Callback
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources.base import FrameSource
from tests.support import app_models

NAMES = ("recorded", "live", "other")


class Storm(FrameSource):
    """Random scenes; those of a number are always the same."""

    owns_memory = True

    def __init__(self, seed: int, count: int, *, live: bool = False) -> None:
        self._seed, self._count, self.live = seed, count, live

    def __iter__(self) -> Iterator[SourceFrame]:
        for number in range(self._count):
            if self.live:
                time.sleep(0.0005)
            yield app_models.frame(number, app_models.scene(squares_of(self._seed, number)))


def squares_of(seed: int, number: int) -> list[app_models.Square]:
    """Return the squares of a frame: none to forty."""
    generator = np.random.default_rng([seed, number])
    return app_models.random_squares(generator, int(generator.integers(41)))


def troubled(function: Callable[[np.ndarray], np.ndarray], fail: int, hang: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that fails and hangs on some of its calls."""
    calls = itertools.count(1)

    def call(picture: np.ndarray) -> np.ndarray:
        number = next(calls)
        if number % fail == 0:
            raise RuntimeError("this call fails")
        if number % hang == 0:
            time.sleep(0.3)
        return function(picture)

    return call


def application() -> App:
    """Return three streams, two models, a tracker and a sink."""
    return App(
        {name: Stream(source="-") for name in NAMES},
        {
            "squares": Model(file="-", stage_timeout=0.1),
            "things": Track(reads=("squares",), method="iou"),
            "levels": Model(file="-", reads=("things",), for_each="boxes", stage_timeout=0.1),
            "first": Model(file="-", reads=("squares",), for_each="boxes", most=1, when="every(3)"),
            "out": SinkNode(to="-", reads=("levels", "first")),
        },
    )


def weather(app: pipeline.RunningApp, stop: threading.Event) -> None:
    """Swap the models for new ones again and again."""
    for number in itertools.count():
        if stop.wait(0.2):
            return
        name = ("squares", "levels")[number % 2]
        bundle = app_models.detector() if name == "squares" else app_models.classifier()
        # It may have ended by itself meanwhile.
        with contextlib.suppress(PipelineClosed):
            app.pipelines[name].swap(bundle)


def check(frame: AppFrame, seed: int) -> None:
    """Compare the crops of a delivered frame with its scene."""
    levels = {(column, row): level for column, row, level in squares_of(seed, int(frame.frame.name))}
    for node in ("levels", "first"):
        result = frame.results.get(node)
        if result is None:
            assert node == "first"
            continue
        assert isinstance(result, Detections)
        assert len(result) == (len(levels) if node == "levels" else min(1, len(levels)))
        for box, crop in zip(result.boxes, result.attributes.get(node, ()), strict=True):
            cell = int(box[0]) // app_models.CELL, int(box[1]) // app_models.CELL
            assert int(crop.classes[0]) == levels[cell]


def run_storm(count: int, *, ends_early: bool = False) -> None:
    """Run so many frames of each stream, and check the books."""
    ended, written = list[AppFrame](), list[StreamFrame]()
    app = pipeline.load_app(
        application(),
        sources={name: Storm(number, count, live=name == "live") for number, name in enumerate(NAMES)},
        bundles={
            "squares": app_models.detector(troubled(app_models.find_squares, 53, 401)),
            "levels": app_models.classifier(troubled(app_models.measure_level, 997, 4001)),
            "first": app_models.classifier(),
        },
        sinks={"out": Callback(written.append)},
        on_frame=ended.append,
    )
    stop = threading.Event()
    swapping = threading.Thread(target=weather, args=(app, stop))
    swapping.start()
    if ends_early:
        threading.Timer(0.5, app.stop).start()
    with app:
        app.run()
        books, crops = app.statistics(), app.crop_books.snapshot()
        stop.set()
        swapping.join()
    for number, name in enumerate(NAMES):
        frames = [frame for frame in ended if frame.stream == name]
        assert [frame.index for frame in frames] == list(range(len(frames)))
        assert books[name].in_flight == 0
        assert books[name].taken == len(frames) + books[name].dropped
        assert ends_early or books[name].taken == count
        assert books[name].delivered == sum(frame.error is None for frame in frames)
        for frame in frames:
            if frame.error is None:
                check(frame, number)
        # Sinks have exactly those that did not fail before, in order.
        indices = [frame.sequence for frame in written if frame.stream == name]
        assert indices == sorted(indices)
        assert set(indices) == {frame.index for frame in frames if frame.error is None}
    for book in crops.values():
        assert book.in_flight == 0
        assert book.taken > 0


def test_a_storm_loses_no_frame() -> None:
    run_storm(150)


def test_a_storm_that_is_ended_loses_no_frame_either() -> None:
    run_storm(100_000, ends_early=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_storm_loses_no_frame() -> None:
    run_storm(100_000 // len(NAMES))
