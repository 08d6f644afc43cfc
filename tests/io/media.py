"""Small videos, pictures and pipelines for tests."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.board import Board, Device
from pipeline.executor.bundle import Bundle
from pipeline.io.frame import Delivered, Frame
from pipeline.io.pixels import Pixels
from pipeline.plans import Plan, StagePlan, TensorSpec

WIDTH, HEIGHT = 64, 48


def noise(count: int, *, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Return pictures, uint8 [count, height, width, 3], that no lossy codec would leave as they are."""
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8)


def smooth(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Return one picture whose colours change slowly."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([across, down, 255 - across], axis=-1).astype(np.uint8)


def write(
    path: Path, pictures: Sequence[np.ndarray], codec: str = "ffv1", pixels: str = "bgr0", times: Sequence[int] = ()
) -> Path:
    """Write a video of 25 pictures per second, or with `times` in milliseconds."""
    import av

    with av.open(str(path), "w") as container:
        height, width = pictures[0].shape[:2]
        stream: Any = container.add_stream(codec, rate=25, width=width, height=height)
        stream.pix_fmt = pixels
        if times:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = (times[number], Fraction(1, 1000)) if times else (number, Fraction(1, 25))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def read(path: Path) -> tuple[np.ndarray, list[float]]:
    """Return the pictures of a video as uint8 [count, height, width, 3], and their times in seconds."""
    import av

    with av.open(str(path)) as container:
        found = [(frame.to_ndarray(format="rgb24"), float(frame.time)) for frame in container.decode(video=0)]
    return np.stack([picture for picture, _ in found]), [time for _, time in found]


def identity(shape: tuple[int, ...], dtype: str = "uint8", **options: Any) -> Bundle:
    """Return a bundle of one stage that passes its input on."""
    reads, makes = TensorSpec("x", shape, dtype), TensorSpec("y", shape, dtype)
    board = Board("test", (Device("nothing", "null"),))
    stage = StagePlan("same", "nothing", (reads,), (makes,), **options)
    return Bundle(Plan("identity", "", board, (reads,), (makes,), (stage,)), [None])


def delivered(output: Any, picture: np.ndarray | None = None, stamp: int = 0, name: str = "a") -> Delivered:
    """Return what a sink gets."""
    if picture is None:
        return Delivered(Frame(name, np.zeros(1), stamp), {"y": output})
    pixels = Pixels("rgb24", picture.shape[1], picture.shape[0])
    return Delivered(Frame(name, picture, stamp, pixels=pixels), {"y": output})
