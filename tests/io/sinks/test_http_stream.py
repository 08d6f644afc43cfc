"""Pictures over HTTP on loopback, as a browser gets them."""

from __future__ import annotations

import http.client
import io
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.results import Detections
from pipeline.io.sinks import registry
from pipeline.io.sinks.http_stream import HttpStream
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.picture.pixels import Pixels
from tests.support import media
from tests.support.listening import listening_addresses

Image = pytest.importorskip("PIL.Image")

LIMIT = 30.0


def parts(url: str) -> Iterator[np.ndarray]:
    """Yield the pictures of a stream, and leave it."""
    with urllib.request.urlopen(f"{url}stream", timeout=LIMIT) as answer:
        assert answer.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=picture"
        while answer.readline() == b"--picture\r\n":
            head = http.client.parse_headers(answer)
            assert head["Content-Type"] == "image/jpeg"
            data = answer.read(int(head["Content-Length"]))
            assert answer.readline() == b"\r\n"
            with Image.open(io.BytesIO(data)) as image:
                yield np.asarray(image)


def grey(level: int) -> StreamFrame:
    return media.frame_result(np.zeros(1), np.full((48, 64, 3), level, np.uint8))


def test_a_browser_gets_a_page_and_the_newest_pictures() -> None:
    with HttpStream(0) as sink:
        with urllib.request.urlopen(sink.url, timeout=LIMIT) as answer:
            assert answer.headers["Content-Type"] == "text/html"
            assert b'<img src="stream"' in answer.read()
        sink.add(grey(10))
        sink.add(grey(20))
        pictures = parts(sink.url)
        assert abs(next(pictures).astype(int) - 20).max() <= 2
        sink.add(grey(30))
        assert abs(next(pictures).astype(int) - 30).max() <= 2
        # Sent again, so that a viewer who has gone is known.
        assert abs(next(pictures).astype(int) - 30).max() <= 2
    assert next(pictures, None) is None


def test_results_are_drawn_when_somebody_looks() -> None:
    boxes = Detections(np.array([[8, 20, 40, 40]], np.float32), np.ones(1, np.float32), np.zeros(1, np.int64))
    frame = SourceFrame("a", np.zeros((48, 64, 3), np.uint8), 0, pixels=Pixels("rgb24", 64, 48))
    with HttpStream(0) as sink:
        # Nobody does: a frame without a picture is no error.
        sink.add(StreamFrame(SourceFrame("b", {}, 0), {"y": np.zeros(1)}))
        sink.add(StreamFrame(frame, {"y": np.zeros(1)}, result=boxes))
        assert next(parts(sink.url)).max() > 150


def test_two_viewers_get_the_same_picture() -> None:
    with HttpStream(0) as sink:
        first, second = parts(sink.url), parts(sink.url)
        sink.add(grey(70))
        assert (next(first) == next(second)).all()


def test_it_serves_this_machine_alone_and_ends_with_its_block() -> None:
    threads = set(threading.enumerate())
    with HttpStream(0) as sink:
        port = int(sink.url.rsplit(":", 1)[1].strip("/"))
        assert listening_addresses(port) == {"127.0.0.1"}
        request = urllib.request.Request(sink.url, headers={"Host": "example.com"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=LIMIT)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{sink.url}other", timeout=LIMIT)
        sink.add(grey(1))
        viewer = parts(sink.url)
        next(viewer)
    assert not listening_addresses(port)
    deadline = time.monotonic() + LIMIT
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= threads


def open_mjpeg(text: str, **facts: Any) -> Any:
    return registry.open_sink(text, [TensorSpec("y", (1,))], **facts)


def test_its_address_is_said() -> None:
    notices: list[str] = []
    with open_mjpeg("mjpeg:0", notice=notices.append) as sink:
        assert notices == [f"pictures: {sink.url}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mjpeg:x", "'x' is no port; write mjpeg:8080"),
        ("mjpeg:", "'mjpeg:' names nothing to write"),
        ("mjpeg:65536", "cannot serve pictures on port 65536"),
        ("mjpeg:0?shows=label", "did you mean 'show'"),
        ("mjpeg:0?show=all", "show is 'all'"),
    ],
)
def test_what_is_no_port_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_mjpeg(text)


def test_a_port_that_is_taken_is_refused() -> None:
    with HttpStream(0) as sink:
        port = sink.url.rsplit(":", 1)[1].strip("/")
        with pytest.raises(InputError, match="another program uses it"):
            open_mjpeg(f"mjpeg:{port}")
