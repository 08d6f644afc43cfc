"""Recordings whose stream ends by an error."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, SourceLost, StageError
from pipeline.io.sinks import registry
from pipeline.io.sinks.base import Sink
from pipeline.io.source_frame import StreamFrame
from pipeline.io.stream import FrameStream
from tests.io.test_stream import Numbered
from tests.support import media
from tests.support.media import WIDTH

pytest.importorskip("av")
pytest.importorskip("rosbags")

PICTURE = (TensorSpec("y", (media.HEIGHT, WIDTH, 3), "uint8"),)
TEXTS = [
    "out.mp4", "out.mkv?codec=ffv1", "out.avi?codec=mpeg4", "out.npz", "out.jsonl", "out", "bag:bag",
    "bag:bag?storage=sqlite3",
]  # fmt: skip


def text_in(folder: Path, text: str) -> str:
    """Return a sink's text with its file in a folder."""
    kind, colon, location = text.rpartition(":")
    return f"{kind}{colon}{folder / location}"


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_recorded_before_a_failure_is_complete(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceLost), registry.open_sinks([text_in(tmp_path, text)], PICTURE) as sink:
        for number, picture in enumerate(media.noise(7)):
            sink.add(media.frame_result(picture, stamp=number * 40_000_000))
        raise SourceLost("unplugged")
    (path,) = tmp_path.iterdir()
    assert media.count(path) == 7


@pytest.mark.parametrize("text", [text for text in TEXTS if text not in {"out.jsonl", "out"}])
def test_what_holds_nothing_is_removed(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceLost), registry.open_sinks([text_in(tmp_path, text)], PICTURE):
        raise SourceLost("unplugged")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("show", "message"),
    [("boxes", r"'y' \[48, 64, 3\]; leave out show=boxes"), ("label", r"'y' is \[48, 64, 3\], which")],
)
def test_what_cannot_be_shown_is_refused_before_the_first_frame(tmp_path: Path, show: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.open_sink(f"{tmp_path / 'out.mp4'}?show={show}", PICTURE)
    assert not list(tmp_path.iterdir())


def test_a_stage_that_fails_leaves_the_results_before_it_to_every_sink(tmp_path: Path) -> None:
    def fifth(array: np.ndarray) -> np.ndarray:
        if array[0] == 5:
            raise ValueError("five")
        return array

    outputs = [TensorSpec("z", (4,))]
    bundle = media.identity((4,), "float32").with_stage(fifth, inputs=["y"], outputs=outputs)
    texts = [text_in(tmp_path, text) for text in ("out.npz", "bag:bag", "out", "out.jsonl")]
    with (
        pytest.raises(StageError, match="five"),
        registry.open_sinks(texts, outputs) as sink,
        pipeline.load(bundle) as running,
    ):
        FrameStream(running, Numbered(1000), sink).run()
    assert {path.name: media.count(path) for path in tmp_path.iterdir()} == {
        "out.npz": 5, "bag": 5, "out": 5, "out.jsonl": 5,
    }  # fmt: skip
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["z"][:, 0].tolist() == list(range(5))


def test_the_first_error_counts_and_the_sink_s_own_is_a_warning() -> None:
    class Broken(Sink):
        def finish(self) -> None:
            raise OSError(28, "No space left on device")

    with pytest.warns(RuntimeWarning, match="incomplete.*No space left"), pytest.raises(SourceLost), Broken():
        raise SourceLost("unplugged")


def test_an_interrupt_at_the_end_of_a_stream_leaves_the_sink_its_time() -> None:
    """It comes while the source has ended, and the sink is busy with a result: completing the file has to wait."""
    calls: list[str] = []

    class Slow(Sink):
        def add(self, result: StreamFrame) -> None:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.1)
            calls.append("added")

        def finish(self) -> None:
            calls.append("finished")

    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            Slow() as sink,
            pipeline.load(media.identity((4,), "float32")) as running,
        ):
            FrameStream(running, Numbered(1), sink).run()
    finally:
        signal.signal(signal.SIGINT, previous_handler)
    assert calls == ["added", "finished"]
