"""Announces a stream at an address and sends 40 pictures: in a process of its own, since it holds the interpreter."""

from __future__ import annotations

import sys
import time
from fractions import Fraction
from typing import Any

import av
import numpy as np


def main(url: str, width: int, height: int) -> None:
    container, stream = connect(url, width, height)
    for number in range(40):
        picture = np.full((height, width, 3), 100, np.uint8)
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = number, Fraction(1, 25)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())
    container.close()


def connect(url: str, width: int, height: int) -> tuple[Any, Any]:
    """Connect as soon as the receiver listens."""
    for _ in range(200):
        container = av.open(url, "w", format="rtsp", options={"rtsp_transport": "tcp"})
        stream: Any = container.add_stream("mpeg4", rate=25, width=width, height=height)
        stream.pix_fmt = "yuv420p"
        try:
            container.start_encoding()
        except OSError:
            time.sleep(0.05)
        else:
            return container, stream
    raise TimeoutError(url)


if __name__ == "__main__":
    main(sys.argv[1], 64, 48)
