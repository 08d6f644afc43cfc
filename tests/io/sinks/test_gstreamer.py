"""Pipelines of GStreamer as sinks, whose files are read again by pipelines."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, SourceLost
from pipeline.io.results import Detections
from pipeline.io.sinks import registry
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources.gstreamer import GstSource
from pipeline.picture.pixels import Pixels
from tests.support import media
from tests.support.gst import skip_without_gstreamer

OUTPUTS = (TensorSpec("y", (1,)),)
STEP = 40_000_000


@pytest.fixture(autouse=True)
def _gstreamer() -> None:
    skip_without_gstreamer("appsrc", "videoconvert", "jpegenc", "jpegdec", "matroskamux", "matroskademux")


def results(count: int, width: int = 64, height: int = 48) -> list[StreamFrame]:
    """Return pictures that become brighter."""
    pictures = [np.full((height, width, 3), 5 * number, np.uint8) for number in range(count)]
    return [media.frame_result(np.zeros(1), picture, number * STEP) for number, picture in enumerate(pictures)]


def write(text: str, frames: list[StreamFrame]) -> None:
    with registry.open_sinks([f"gst:{text}"], OUTPUTS, allow_commands=True) as sink:
        for frame in frames:
            sink.add(frame)


@pytest.mark.parametrize("size", [(64, 48), (65, 49)])
def test_pictures_arrive_whole_in_order_and_with_their_times(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "a.mkv"
    write(f"jpegenc quality=100 ! matroskamux ! filesink location={path}", results(20, *size))
    end = "videoconvert ! appsink caps=video/x-raw,format=RGB sync=false"
    with GstSource(f"filesrc location={path} ! matroskademux ! jpegdec ! {end}") as source:
        frames = list(source)
    assert [frame.stamp for frame in frames] == [number * STEP for number in range(20)]
    assert source.pixels == Pixels("rgb24", *size)
    for number, frame in enumerate(frames):
        # But for the last column and row, which jpegenc leaves as they are where a size is odd.
        assert abs(np.asarray(frame.inputs)[:-1, :-1].astype(int) - 5 * number).max() <= 3


def test_results_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    picture = np.zeros((48, 64, 3), np.uint8)
    boxes = Detections(np.array([[8, 20, 40, 40]], np.float32), np.ones(1, np.float32), np.zeros(1, np.int64))
    frame = SourceFrame("a", picture, 0, pixels=Pixels("rgb24", 64, 48))
    write(f"jpegenc ! filesink location={tmp_path / 'a.jpg'}", [StreamFrame(frame, {"y": np.zeros(1)}, result=boxes)])
    from PIL import Image

    with Image.open(tmp_path / "a.jpg") as image:
        drawn = np.asarray(image)
    assert drawn.max() > 150
    assert drawn[20:40, 60:].max() < 20


def test_what_was_pushed_before_a_failure_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    text = f"gst:jpegenc ! matroskamux ! filesink location={path}"
    with pytest.raises(SourceLost), registry.open_sinks([text], OUTPUTS, allow_commands=True) as sink:
        for frame in results(7):
            sink.add(frame)
        raise SourceLost("unplugged")
    with GstSource(f"filesrc location={path} ! matroskademux ! jpegdec") as source:
        assert len(list(source)) == 7


def test_a_clock_that_steps_back_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    frames = results(4)
    write(f"jpegenc ! matroskamux ! filesink location={path}", [frames[2], frames[1], frames[0], frames[3]])
    with GstSource(f"filesrc location={path} ! matroskademux ! jpegdec") as source:
        assert len(list(source)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("libnothingenc ! fakesink", "there is no element 'libnothingenc'"),
        ("filesink location=/nowhere/a", r"filesink\d+: Could not open file .* \(system error: No such file"),
        ("identity error-after=3 ! fakesink", r"identity\d+: Failed after iterations"),
        ("audioconvert ! fakesink", r"could not link videoconvert\d+ to audioconvert"),
        ("video/x-raw,format=RGB,width=32 ! fakesink", "formats of two elements do not fit"),
        ("fakesink?show=all", "show is 'all'"),
    ],
)
def test_what_is_wrong_is_one_line_by_name(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        write(text, results(20))
    assert "\n" not in str(error.value)


def test_nothing_and_several_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="no frame was delivered"):
        write("fakesink", [])
    with pytest.raises(InputError, match="the pictures have become"):
        write("fakesink", results(1) + results(1, 32))


def test_what_looks_like_options_may_be_the_end_of_an_address(tmp_path: Path) -> None:
    path = tmp_path / "a?key=b"
    write(f"jpegenc ! filesink location={path}", results(1))
    assert path.stat().st_size


def test_a_pipeline_out_of_somebody_else_s_file_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would run a command of somebody else's file"):
        registry.open_sink(f"gst:filesink location={tmp_path / 'proof'}", OUTPUTS)
    assert not list(tmp_path.iterdir())


def test_a_slow_pipeline_holds_the_stream_back() -> None:
    """It plays at the pictures' own pace, and only a few wait in front of it."""
    with registry.open_sinks(["gst:fakesink sync=true"], OUTPUTS, allow_commands=True) as sink:
        begin = time.monotonic()
        for frame in results(20):
            sink.add(frame)
        assert time.monotonic() - begin > 0.4
