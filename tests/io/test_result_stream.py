"""The verb stream: five lines from a video to boxes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.model_card import Preparation
from pipeline.errors import InputError, PipelineClosed, PipelineError, SourceLost
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.result_reader import ResultReader
from pipeline.io.sinks.base import Callback, Sink, SinkGroup
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.io.stream import FrameStream
from pipeline.picture.pixels import Pixels
from tests.support import detectors, media

YOLOX = pipeline.ModelCard(decoder="yolox")
CELLS = [(0, 0), (1, 2), (3, 1), (2, 3)]


class Scenes(FrameSource):
    """A picture for each cell; after the last one comes `error`."""

    owns_memory = True
    pixels = Pixels("rgb24", 64, 64)

    def __init__(self, count: int, *, live: bool = False, error: Exception | None = None) -> None:
        self._count, self.live, self._error, self.closed = count, live, error, False

    def __iter__(self) -> Iterator[SourceFrame]:
        for number in range(self._count):
            cell = CELLS[number % len(CELLS)]
            yield SourceFrame(f"{number}", detectors.scene(cell), time.time_ns(), pixels=self.pixels)
            time.sleep(0.002 if self.live else 0)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnx")
    return detectors.save_detector(tmp_path_factory.mktemp("detector") / "cells.onnx")


@pytest.fixture(scope="session")
def detector_bundle(detector: Path) -> Any:
    graph = pipeline.read(detector)
    return pipeline.build(graph, pipeline.plan(graph, stages=2))


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name in ("stream", "sink")]


def test_boxes_of_a_model_on_a_video(detector: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    video = media.write(tmp_path / "cells.mkv", [detectors.scene(cell) for cell in CELLS])
    frames = list(pipeline.stream(detector, video, sinks=[tmp_path / "out.jsonl"], card=YOLOX))
    assert [frame.sequence for frame in frames] == [0, 1, 2, 3]
    for frame, cell in zip(frames, CELLS, strict=True):
        np.testing.assert_allclose(frame.detections.boxes, detectors.boxes(cell), atol=0.01)
        np.testing.assert_array_equal(frame.picture, detectors.scene(cell))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 4


def test_labels_and_a_decoder_by_hand(detector_bundle: Any) -> None:
    card = pipeline.ModelCard(labels=["square"], decoder="yolox", parameters={"score": 0.9})
    with pipeline.stream(detector_bundle, Scenes(2), card=card) as stream:
        assert stream.card.decoder == "yolox"
        assert [frame.detections.names for frame in stream] == [["square"], ["square"]]
        assert stream.statistics().delivered == 2


def test_a_loop_that_ends_early_closes_everything(detector_bundle: Any) -> None:
    source, sink = Scenes(1000), []  # type: tuple[Scenes, list[Any]]
    stream = pipeline.stream(detector_bundle, source, sinks=[Callback(sink.append)])
    for frame in stream:
        if frame.sequence == 3:
            break
    assert source.closed
    assert 4 <= len(sink) < 100
    with pytest.raises(PipelineClosed, match="a stream runs once"):
        next(iter(stream))


def test_a_stream_that_nobody_reads_closes(detector_bundle: Any) -> None:
    source = Scenes(10)
    with pipeline.stream(detector_bundle, source):
        pass
    assert source.closed


def test_what_is_live_gives_its_newest_result(detector_bundle: Any) -> None:
    numbers = []
    for frame in pipeline.stream(detector_bundle, Scenes(200, live=True)):
        numbers.append(frame.sequence)
        time.sleep(0.05)
    assert numbers == sorted(set(numbers))
    # The last result, whatever became of those before it.
    assert len(numbers) < 100


def test_an_error_comes_behind_the_frames_before_it(detector_bundle: Any) -> None:
    source = Scenes(3, error=SourceLost("the camera is gone"))
    numbers: list[int] = []
    with pytest.raises(SourceLost, match="the camera is gone"):
        numbers.extend(frame.sequence for frame in pipeline.stream(detector_bundle, source))
    assert numbers == [0, 1, 2]
    assert source.closed


def test_an_error_of_a_sink_ends_the_loop(detector_bundle: Any) -> None:
    def fail(_: object) -> None:
        raise InputError("no room")

    with pytest.raises(InputError, match="no room"):
        list(pipeline.stream(detector_bundle, Scenes(100), sinks=[Callback(fail)]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("missing.onnx", "a.jpg"), {}, "no model at 'missing.onnx'"),
        (("missing.bundle", "a.jpg"), {}, "'missing.bundle' does not exist"),
        ((None, "missing.jpg"), {}, "no source at 'missing.jpg'"),
        ((None, Scenes(1)), {"sinks": ["out.gif"]}, "cannot write 'out.gif'"),
        ((None, Scenes(1)), {"card": "missing.toml"}, "no card in 'missing.toml'"),
        ((None, Scenes(1)), {"card": pipeline.ModelCard(decoder="yolo")}, "there is no decoder 'yolo'; did you mean"),
        ((None, Scenes(1)), {"admission": "newest"}, "must be one of 'block'"),
    ],
)
def test_mistakes_are_found_at_once(
    detector_bundle: Any, arguments: tuple[Any, Any], options: dict[str, Any], message: str
) -> None:
    model, source = arguments
    with pytest.raises(PipelineError, match=message):
        pipeline.stream(model or detector_bundle, source, **options)


def test_a_model_without_a_decoder() -> None:
    card = pipeline.ModelCard(decoder="none")
    (frame,) = pipeline.stream(media.identity((64, 64, 3)), Scenes(1), card=card)
    assert frame.result is None
    np.testing.assert_array_equal(frame.outputs["y"], frame.picture)
    with pytest.raises(InputError, match=r"has no decoder; give card=ModelCard\(decoder=...\), with the name of one"):
        _ = frame.detections


class Full(Sink):
    """Fails in the end, as on a full disk."""

    def finish(self) -> None:
        raise OSError("no space left")


def test_an_error_after_the_loop_ended_early_is_a_warning(detector_bundle: Any) -> None:
    with (
        pytest.warns(RuntimeWarning, match="the stream failed in the end: no space left"),
        pipeline.stream(detector_bundle, Scenes(20), sinks=[Full()]) as stream,
    ):
        next(iter(stream))


def test_results_that_no_sink_reads_are_not_decoded(detector_bundle: Any) -> None:
    reads: list[str] = []

    class Counting(ResultReader):
        def read_frame(self, frame: SourceFrame, outputs: Any, geometry: Any) -> Any:
            reads.append(frame.name)
            return super().read_frame(frame, outputs, geometry)

    class Blind(Sink):
        reads_results = False

    reader = Counting(detector_bundle.plan, detector_bundle.card.merge(YOLOX))
    for sinks in ([Blind()], [Blind(), Sink()]):
        bundle, geometry = prepare_bundle(detector_bundle, Scenes.pixels, Preparation())
        with pipeline.load(bundle) as running:
            FrameStream(running, Scenes(3), SinkGroup(sinks), reader=reader, geometry=geometry).run()
    assert reads == ["0", "1", "2"]
