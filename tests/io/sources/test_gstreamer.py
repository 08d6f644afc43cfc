"""Pipelines of GStreamer as sources, with its own test pictures, encoded files, and a server of RTSP on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError, SourceLost
from pipeline.io import gstreamer
from pipeline.io.gstreamer import explain, missing_element
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceOptions
from pipeline.io.sources.gstreamer import GstSource
from pipeline.io.sources.registry import open_source
from tests.support.gst import rtsp_server, skip_without_gstreamer

SMALL = "video/x-raw,format=NV12,width=64,height=48,framerate=50/1"


@pytest.fixture(autouse=True)
def _gstreamer() -> None:
    skip_without_gstreamer("videotestsrc", "videoconvert", "appsink")


def open_gst(text: str, **options: Any) -> FrameSource:
    return open_source(f"gst:{text}", SourceOptions(allow_commands=True, **options))


def first_picture(text: str) -> tuple[GstSource, np.ndarray]:
    with GstSource(text) as source:
        frame = next(iter(source))
    assert isinstance(frame.inputs, np.ndarray)
    return source, frame.inputs


@pytest.mark.parametrize(
    ("made", "travels", "size"),
    [
        ("I420", "yuv420p", (322, 244)),
        ("NV12", "nv12", (322, 244)),
        ("YUY2", "yuyv422", (322, 244)),
        ("GRAY8", "gray", (321, 241)),
        ("RGB", "rgb24", (321, 241)),
        ("BGR", "bgr24", (321, 241)),
        ("RGBA", "rgba", (321, 241)),
        ("BGRx", "bgra", (321, 241)),
        # Half a colour has no place; what cameras have beside these is converted.
        ("I420", "bgra", (321, 241)),
        ("I420", "bgra", (322, 242)),
        ("Y42B", None, (322, 242)),
        ("GRAY16_LE", None, (322, 242)),
    ],
)
def test_what_pipelines_make_is_read_with_the_right_colours(
    made: str, travels: str | None, size: tuple[int, int]
) -> None:
    """The sizes are such that GStreamer's rows end in padding."""
    pytest.importorskip("av")
    caps = f"video/x-raw,width={size[0]},height={size[1]}"
    source, picture = first_picture(f"videotestsrc num-buffers=1 ! {caps},format={made}")
    wide = f"videotestsrc num-buffers=1 ! {caps},format={made} ! videoconvert ! {caps},format=RGBA"
    _, reference = first_picture(wide)
    assert (travels or source.pixels.format, picture.shape) == (source.pixels.format, source.pixels.shape)
    assert source.pixels.shape[:2] == (size[1], size[0]) or source.pixels.format in ("nv12", "yuv420p")
    difference = abs(source.pixels.rgb(picture).astype(int) - reference[..., :3])
    # Colours are at half the size in some formats, and are spread by another rule.
    assert np.percentile(difference, 90) <= 3


def test_a_recording_ends_and_has_its_own_times() -> None:
    # Longer than a file's name may be.
    text = f"videotestsrc num-buffers=7 ! {SMALL}" + " ! identity" * 50
    with open_gst(text) as source:
        frames = list(source)
    assert not source.live
    assert [frame.name for frame in frames] == [f"{number:06d}" for number in range(7)]
    assert [frame.stamp for frame in frames] == [number * SECOND // 50 for number in range(7)]


def test_an_encoded_file_is_decoded(tmp_path: Path) -> None:
    skip_without_gstreamer("jpegenc", "jpegdec", "matroskamux", "matroskademux", "decodebin")
    path = tmp_path / "a.mkv"
    made = f"videotestsrc num-buffers=9 pattern=white ! {SMALL} ! jpegenc ! matroskamux ! filesink location={path}"
    with gstreamer.LaunchedPipeline(f"{made} videotestsrc num-buffers=1 ! appsink", "appsink") as recording:
        recording.play()
        deadline = time.monotonic() + 30
        while not recording.ended and time.monotonic() < deadline:
            recording.end.try_pull_sample(SECOND // 100)
            recording.check()
    with open_gst(f"filesrc location={path} ! decodebin") as source:
        frames = list(source)
    assert len(frames) == 9
    assert not source.live
    assert source.pixels is not None
    assert source.pixels.format == "yuv420p"
    assert all(np.percentile(np.asarray(frame.inputs)[:48], 50) > 230 for frame in frames)


def test_live_pictures_carry_the_time_of_their_capture_and_end_in_a_loss() -> None:
    begin, frames = time.time(), list[SourceFrame]()
    with open_gst(f"videotestsrc is-live=true num-buffers=8 ! {SMALL}") as source:
        with pytest.raises(SourceLost, match=r"the pipeline has ended after \d frames"):
            frames.extend(source)
        assert source.live
    for frame in frames:
        assert frame.ready == pytest.approx(frame.timestamp, abs=1e-6)
        assert begin < frame.timestamp <= time.time()
    assert (np.diff([frame.stamp for frame in frames]) > 0).all()


def test_of_what_is_live_the_newest_picture_waits() -> None:
    with open_gst(f"videotestsrc is-live=true ! {SMALL}") as source:
        frames = iter(source)
        first = next(frames)
        time.sleep(0.5)
        second = next(frames)
    # Of the 25 pictures meanwhile, or more on a busy machine, none is waiting.
    assert second.timestamp - first.timestamp > 0.2


def test_a_lost_pipeline_comes_back() -> None:
    notices: list[str] = []
    text = f"videotestsrc is-live=true num-buffers=3 ! {SMALL}"
    with open_gst(text, reconnect=20.0, notice=notices.append) as source:
        assert len(list(islice(source, 8))) == 8
    assert notices[1] == "back again"
    with pytest.raises(InputError, match="is not live"):
        open_gst(f"videotestsrc num-buffers=3 ! {SMALL}", reconnect=20.0)


def test_a_stream_of_rtsp_is_read_until_its_server_ends() -> None:
    skip_without_gstreamer("rtspsrc", "rtpjpegpay", "rtpjpegdepay", "jpegenc", "jpegdec", "decodebin")
    frames: list[SourceFrame] = []
    pictures = "videotestsrc is-live=true pattern=white ! video/x-raw,format=I420,width=64,height=48 ! jpegenc"
    with ExitStack() as stack:
        with rtsp_server(f"{pictures} ! rtpjpegpay name=pay0") as address:
            text = f"rtspsrc location={address} latency=0 protocols=tcp ! decodebin"
            source = stack.enter_context(open_gst(text))
            coming = iter(source)
            frames += islice(coming, 10)
        with pytest.raises(SourceLost, match="gst: "):
            frames.extend(coming)
    assert source.live
    assert len(frames) >= 10
    assert np.asarray(frames[-1].inputs)[:48].mean() > 230
    assert (np.diff([frame.stamp for frame in frames]) > 0).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("libnothingsrc ! x", "there is no element 'libnothingsrc'; 'apt-cache search gstreamer1.0' lists"),
        ("videotestsrc foo=1", 'no property "foo" in element "videotestsrc"'),
        ("videotestsrc ! ! x", "syntax error"),
        ("appsink", "'appsink' is a single element"),
        ("filesrc location=/nowhere ! decodebin", r"filesrc\d+: Resource not found \(No such file"),
        ("fakesrc", "formats of two elements do not fit: put videoconvert between them"),
        ("audiotestsrc", r"could not link audiotestsrc\d+ to videoconvert"),
        ("videotestsrc num-buffers=0", "has ended before its first picture"),
        ("videotestsrc ! appsink caps=video/x-raw,format=GRAY16_LE", "the appsink gets video/x-raw, format"),
    ],
)
def test_what_is_wrong_is_one_line_by_name(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        open_gst(text)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("gst: ")


def test_a_missing_camera_is_named() -> None:
    skip_without_gstreamer("v4l2src")
    with pytest.raises(InputError, match=r"v4l2src.* Cannot identify device '/dev/no-camera'"):
        open_gst("v4l2src device=/dev/no-camera")


def test_pictures_that_change_their_size_are_refused() -> None:
    sizes = "videotestsrc num-buffers=2 ! video/x-raw,width={0},height=48,format=RGB"
    text = f"concat name=all ! appsink sync=false {sizes.format(64)} ! all. {sizes.format(32)} ! all."
    with open_gst(text) as source, pytest.raises(InputError, match=r"the pictures have become .*'videoscale"):
        list(source)


def test_an_error_behind_the_first_picture_is_a_loss_of_what_is_live() -> None:
    for live, kind in (("true", SourceLost), ("false", InputError)):
        text = f"videotestsrc is-live={live} ! {SMALL} ! identity error-after=5"
        with open_gst(text) as source, pytest.raises(kind, match=r"identity\d+: Failed after iterations"):
            list(source)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("libcamerasrc", "apt-get install gstreamer1.0-libcamera"),
        ("v4l2h264dec", "apt-get install gstreamer1.0-plugins-good"),
        ("nvv4l2decoder", "JetPack"),
        ("x264enc", "apt-get install gstreamer1.0-plugins-ugly"),
        ("mppvideodec", "Rockchip"),
    ],
)
def test_a_missing_element_comes_with_its_origin(name: str, remedy: str) -> None:
    assert gstreamer.missing_element(name).startswith(f"there is no element {name!r}; ")
    assert remedy in gstreamer.missing_element(name)


def test_a_busy_camera_and_a_missing_decoder_come_with_a_remedy() -> None:
    """As v4l2src, libcamerasrc and decodebin report them."""
    busy = gstreamer.explain("v4l2src0", "Device '/dev/video0' is busy", "v4l2src.c(1): f ():\nCall to S_FMT failed")
    assert busy.startswith("gst: v4l2src0: Device '/dev/video0' is busy (Call to S_FMT failed); another program has it")
    assert "another program has it" in gstreamer.explain("libcamerasrc0", "Failed to acquire camera", "")
    missing = gstreamer.explain("decodebin0", "Your GStreamer installation is missing a plug-in.", "", "H.264 decoder")
    assert missing.startswith("gst: decodebin0: there is no H.264 decoder; apt-get install gstreamer1.0-libav")


def test_without_pygobject_the_way_to_it_is_named() -> None:
    """As in an environment of another Python, for which the system's extension is not compiled."""
    code = "import importlib.machinery as machinery, sys; machinery.EXTENSION_SUFFIXES.clear()\n"
    code += "class Hidden:\n    def find_spec(self, name, *_):\n"
    code += "        if name == 'gi': raise ModuleNotFoundError('no gi')\n"
    code += "sys.meta_path.insert(0, Hidden())\n"
    code += "from pipeline.io.gstreamer import library\n"
    code += "from pipeline.errors import MissingExtra\n"
    code += "try: library()\nexcept MissingExtra as error: print(error)"
    line = [sys.executable, "-c", code]
    result = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    assert "apt-get install python3-gi" in result.stdout


def test_exceptions_of_libraries_that_are_loaded_later_are_caught() -> None:
    """GStreamer brings libunwind: TVM, loaded behind it and NumPy, once ended the process at its first exception."""
    code = "import numpy\nfrom pipeline.io.gstreamer import library\nlibrary()\nimport tvm_ffi\n"
    code += "for _ in range(2):\n    try: tvm_ffi.register_global_func('tests.twice', print)\n"
    code += "    except RuntimeError as error: print('caught')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout) == (0, "caught\n"), result.stderr


def test_messages_of_what_is_missing_or_busy_name_the_remedy() -> None:
    assert missing_element("x264enc") == ("there is no element 'x264enc'; apt-get install gstreamer1.0-plugins-ugly")
    busy = explain("v4l2src0", "Device '/dev/video0' is busy", "")
    assert busy.endswith("another program has it: end that one ('fuser -v /dev/video*' shows it)")
