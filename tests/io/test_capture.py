"""What is live.  Cameras are simulated by FFmpeg's own generator of pictures: none can be there in a test."""

from __future__ import annotations

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
from pipeline.io import reconnect
from pipeline.io.capture import Capture, camera, stream
from pipeline.io.clock import Clock
from pipeline.io.frame import Frame
from pipeline.io.reconnect import Reconnecting
from pipeline.io.source import Source

av = pytest.importorskip("av")


def generator(seconds: str = "9", pixels: str = "yuv420p", size: str = "64x48") -> Capture:
    picture = f"smptebars=size={size}:rate=30:duration={seconds},format={pixels}"
    return Capture(picture, "simulated camera", "lavfi")


@pytest.mark.parametrize(
    ("sent", "travels", "shape"),
    [
        ("yuyv422", "yuyv422", (48, 64, 2)),
        ("nv12", "nv12", (72, 64)),
        ("bgr24", "bgr24", (48, 64, 3)),
        ("yuvj420p", "yuvj420p", (72, 64)),
        ("yuvj422p", "rgb24", (48, 64, 3)),
        ("gray", "gray", (48, 64)),
    ],
)
def test_what_cameras_send_is_read_with_the_right_colours(sent: str, travels: str, shape: Any) -> None:
    with av.open(f"smptebars=size=64x48:rate=30,format={sent}", format="lavfi") as container:
        expected = next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)
    with generator(pixels=sent) as found:
        frame = next(iter(found))
    assert isinstance(frame.inputs, np.ndarray)
    assert (found.live, found.pixels.format, frame.inputs.shape) == (True, travels, shape)
    difference = abs(found.pixels.rgb(frame.inputs).astype(int) - expected)
    assert np.percentile(difference, 99) <= 3


def test_pictures_of_odd_size_travel_as_rgb() -> None:
    with generator(size="63x47") as found:
        assert (found.pixels.format, found.pixels.shape) == ("rgb24", (47, 63, 3))


def test_frames_carry_the_time_of_their_capture() -> None:
    before = time.time()
    with generator() as found:
        frames = list(islice(found, 20))
    for frame in frames:
        assert frame.ready == pytest.approx(frame.timestamp, abs=1e-6)
        assert before - 1 < frame.timestamp <= time.time()


def test_a_camera_that_is_unplugged_is_one_error() -> None:
    with (
        generator(seconds="0.1") as found,
        pytest.raises(SourceLost, match=r"simulated camera has ended after \d frames"),
    ):
        list(found)


@pytest.mark.parametrize(
    ("device", "message"), [("/dev/no-camera", "no such file"), ("/dev/null", "cannot open 'camera /dev/null'")]
)
def test_what_is_no_camera_is_refused(device: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        camera(device, size="640x480", fps=30, encoding="mjpeg")


def test_stamps_of_this_machine_s_clock_stay_and_others_are_brought_to_it() -> None:
    now = 1000.0
    clock = Clock(lambda: now)
    assert clock.captured(999.9) == 999.9
    assert clock.captured(None) == 1000
    # A stream that began at 5 s; its second picture came 0.2 s late.
    assert clock.captured(5.0) == 1000
    now = 1000.3
    assert clock.captured(5.1) == pytest.approx(1000.1)
    now = 1000.4
    assert clock.captured(5.4) == pytest.approx(1000.4)
    # It begins anew.
    now = 1001.0
    assert clock.captured(0.0) == 1001


class Numbers(Source):
    """Two frames, and then it is lost."""

    live = True

    def __iter__(self) -> Iterator[Frame]:
        yield Frame("a", np.zeros(1), 0)
        yield Frame("b", np.zeros(1), 0)
        raise SourceLost("unplugged")


def test_a_source_that_comes_back_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "PAUSE", 0.0)
    tries: list[int] = []
    said: list[str] = []

    def opening() -> Source:
        tries.append(0)
        if len(tries) in (2, 3):
            raise InputError("not there")
        return Numbers()

    with Reconnecting(opening, 60, said.append) as found:
        assert [frame.name for frame in islice(found, 5)] == ["a", "b", "a", "b", "a"]
    assert len(tries) == 5
    assert said[:2] == ["unplugged; trying again for 60 s", "back again"]


def test_a_source_that_stays_away_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "PAUSE", 0.01)
    opened = [Numbers()]

    def opening() -> Source:
        if not opened:
            raise InputError("not there")
        return opened.pop()

    with Reconnecting(opening, 0.05) as found, pytest.raises(SourceLost, match=r"did not come back within 0\.05 s"):
        list(found)


def test_a_source_that_comes_back_as_another_one_is_one_error() -> None:
    sizes = ["64x48", "32x32"]
    with (
        Reconnecting(lambda: generator("0.1", size=sizes.pop(0)), 5) as found,
        pytest.raises(SourceLost, match="came back with other pictures"),
    ):
        list(found)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_stream_of_rtsp_is_read_until_its_sender_ends() -> None:
    """FFmpeg's reader takes the place of the camera's server here, and waits for its sender."""
    url = f"rtsp://127.0.0.1:{free_port()}/live"
    script = Path(__file__).with_name("send_rtsp.py")
    found: list[Frame] = []
    with subprocess.Popen([sys.executable, str(script), url], stderr=subprocess.PIPE) as sender:
        try:
            with (
                stream(url, {"rtsp_flags": "listen", "listen_timeout": "20"}) as source,
                pytest.raises(SourceLost, match=r"after \d+ frames"),
            ):
                found.extend(source)
        finally:
            sender.kill()
    # Those that came while FFmpeg found out what is sent are lost.
    assert len(found) > 20
    steps = np.diff([frame.timestamp for frame in found])
    assert (steps > 0).all()
    assert isinstance(found[-1].inputs, np.ndarray)
    assert abs(source.pixels.rgb(found[-1].inputs).astype(int) - 100).mean() < 5


def test_a_stream_that_nobody_sends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot open 'rtsp://127"):
        stream(f"rtsp://127.0.0.1:{free_port()}/live")
