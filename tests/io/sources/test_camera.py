"""Live sources.  Cameras are simulated by FFmpeg's own generator of pictures: none can be there in a test."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError, SourceLost
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.io.sources.camera import Capture, CaptureClock, open_camera, open_stream
from pipeline.io.sources.reconnect import ReconnectingSource
from pipeline.picture.pixels import library

av = pytest.importorskip("av")


def generator(seconds: str = "9", pixels: str = "yuv420p", size: str = "64x48") -> Capture:
    picture = f"smptebars=size={size}:rate=30:duration={seconds},format={pixels}"
    return Capture(picture, "simulated camera", "lavfi")


@pytest.mark.parametrize(
    ("camera_format", "travels", "shape"),
    [
        ("yuyv422", "yuyv422", (48, 64, 2)),
        ("nv12", "nv12", (72, 64)),
        ("bgr24", "bgr24", (48, 64, 3)),
        ("yuvj420p", "yuvj420p", (72, 64)),
        ("yuvj422p", "rgb24", (48, 64, 3)),
        ("gray", "gray", (48, 64)),
    ],
)
def test_what_cameras_send_is_read_with_the_right_colours(camera_format: str, travels: str, shape: Any) -> None:
    with av.open(f"smptebars=size=64x48:rate=30,format={camera_format}", format="lavfi") as container:
        reference = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    with generator(pixels=camera_format) as source:
        frame = next(iter(source))
    assert isinstance(frame.inputs, np.ndarray)
    assert (source.live, source.pixels.format, frame.inputs.shape) == (True, travels, shape)
    difference = abs(source.pixels.rgb(frame.inputs).astype(int) - reference)
    assert np.percentile(difference, 99) <= 3


def test_pictures_of_odd_size_travel_as_rgb() -> None:
    with generator(size="63x47") as source:
        assert (source.pixels.format, source.pixels.shape) == ("rgb24", (47, 63, 3))


@pytest.mark.parametrize("camera_format", ["yuv420p", "nv12", "yuyv422"])
def test_pictures_of_any_even_height_are_read_whole(camera_format: str) -> None:
    """PyAV takes four rows at a time where colours are at half the height, and the last two of 50 were lost."""
    with generator(pixels=camera_format, size="64x50") as source:
        frame = next(iter(source))
        assert source.pixels.rgb(np.asarray(frame.inputs)).shape == (50, 64, 3)


def test_frames_carry_the_time_of_their_capture() -> None:
    begin = time.time()
    with generator() as source:
        frames = list(islice(source, 20))
    for frame in frames:
        assert frame.ready == pytest.approx(frame.timestamp, abs=1e-6)
        assert begin - 1 < frame.timestamp <= time.time()


def test_a_camera_that_is_unplugged_is_one_error() -> None:
    with (
        generator(seconds="0.1") as source,
        pytest.raises(SourceLost, match=r"simulated camera has ended after \d frames"),
    ):
        list(source)


@pytest.mark.parametrize(
    ("device", "message"), [("/dev/no-camera", "no such file"), ("/dev/null", "cannot open 'camera /dev/null'")]
)
def test_what_is_no_camera_is_refused(device: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_camera(device, size="640x480", fps=30, encoding="mjpeg")


def test_stamps_of_this_machine_s_clock_stay_and_others_are_brought_to_it() -> None:
    clock_time = 1000.0
    clock = CaptureClock(lambda: clock_time)
    assert clock.capture_time(999.9) == 999.9
    assert clock.capture_time(None) == 1000
    # A stream that began at 5 s; its second picture came 0.2 s late.
    assert clock.capture_time(5.0) == 1000
    clock_time = 1000.3
    assert clock.capture_time(5.1) == pytest.approx(1000.1)
    clock_time = 1000.4
    assert clock.capture_time(5.4) == pytest.approx(1000.4)
    # It begins anew.
    clock_time = 1001.0
    assert clock.capture_time(0.0) == 1001


class Numbers(FrameSource):
    """Two frames, and then it is lost."""

    live = True

    def __iter__(self) -> Iterator[SourceFrame]:
        yield SourceFrame("a", np.zeros(1), 0)
        yield SourceFrame("b", np.zeros(1), 0)
        raise SourceLost("unplugged")


def test_a_source_that_comes_back_goes_on() -> None:
    tries: list[int] = []
    notices: list[str] = []

    def open_numbers() -> FrameSource:
        tries.append(0)
        if len(tries) in (2, 3):
            raise InputError("not there")
        return Numbers()

    with ReconnectingSource(open_numbers, 60, notices.append, pause_s=0.0) as source:
        assert [frame.name for frame in islice(source, 5)] == ["a", "b", "a", "b", "a"]
    assert len(tries) == 5
    assert notices[:2] == ["unplugged; trying again for 60 s", "back again"]


def test_a_source_that_stays_away_is_one_error() -> None:
    sources = [Numbers()]

    def open_numbers() -> FrameSource:
        if not sources:
            raise InputError("not there")
        return sources.pop()

    with (
        ReconnectingSource(open_numbers, 0.05, pause_s=0.01) as source,
        pytest.raises(SourceLost, match=r"did not come back within 0\.05 s"),
    ):
        list(source)


def test_a_source_that_comes_back_as_another_one_is_one_error() -> None:
    sizes = ["64x48", "32x32"]
    with (
        ReconnectingSource(lambda: generator("0.1", size=sizes.pop(0)), 5) as source,
        pytest.raises(SourceLost, match="came back with other pictures"),
    ):
        list(source)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_stream_of_rtsp_is_read_until_its_sender_ends() -> None:
    """FFmpeg's reader takes the place of the camera's server here, and waits for its sender."""
    url = f"rtsp://127.0.0.1:{free_port()}/live"
    script = Path(__file__).parents[2] / "support/send_rtsp.py"
    frames: list[SourceFrame] = []
    with subprocess.Popen([sys.executable, str(script), url], stderr=subprocess.PIPE) as sender:
        try:
            with (
                open_stream(url, {"rtsp_flags": "listen", "listen_timeout": "20"}) as source,
                pytest.raises(SourceLost, match=r"after \d+ frames"),
            ):
                frames.extend(source)
        finally:
            sender.kill()
    # Those that came while FFmpeg found out what is sent are lost.
    assert len(frames) > 20
    steps = np.diff([frame.timestamp for frame in frames])
    assert (steps > 0).all()
    assert isinstance(frames[-1].inputs, np.ndarray)
    assert abs(source.pixels.rgb(frames[-1].inputs).astype(int) - 100).mean() < 5


def test_a_stream_that_nobody_sends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot open 'rtsp://127"):
        open_stream(f"rtsp://127.0.0.1:{free_port()}/live")


def test_a_busy_camera_names_who_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(target: str, **_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", target)

    monkeypatch.setattr(library(), "open", refuse)
    with pytest.raises(InputError, match=r"cannot open 'camera /dev/video0': device or resource busy; .*'fuser -v"):
        open_camera("/dev/video0")
