"""Small videos, pictures and pipelines for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.executor.bundle import Bundle
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.picture.pixels import Pixels

WIDTH, HEIGHT = 64, 48


def noise(count: int, *, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Return pictures, uint8 [count, height, width, 3], that no lossy codec would leave as they are."""
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), np.uint8)


def smooth(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Return one picture whose colours change slowly."""
    columns, rows = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([columns, rows, 255 - columns], axis=-1).astype(np.uint8)


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
        frames = [(frame.to_ndarray(format="rgb24"), float(frame.time)) for frame in container.decode(video=0)]
    return np.stack([picture for picture, _ in frames]), [time for _, time in frames]


def identity(shape: tuple[int, ...], dtype: str = "uint8", **options: Any) -> Bundle:
    """Return a bundle of one stage that passes its input on."""
    reads, makes = TensorSpec("x", shape, dtype), TensorSpec("y", shape, dtype)
    board = Board("test", (Device("nothing", "null"),))
    stage = StagePlan("same", "nothing", (reads,), (makes,), **options)
    return Bundle(Plan("identity", "", board, (reads,), (makes,), (stage,)), [None])


def frame_result(
    output: Any,
    picture: np.ndarray | None = None,
    stamp: int = 0,
    name: str = "a",
    quantization: Sequence[Quantization] = (),
) -> StreamFrame:
    """Return what a sink gets."""
    if picture is None:
        return StreamFrame(SourceFrame(name, np.zeros(1), stamp), {"y": output}, quantization=quantization)
    pixels = Pixels("rgb24", picture.shape[1], picture.shape[0])
    return StreamFrame(SourceFrame(name, picture, stamp, pixels=pixels), {"y": output})


def count(path: Path) -> int:
    """Return how many frames a sink has written, as readers that are not ours count them."""
    if path.suffix == ".jsonl":
        return len([json.loads(line) for line in path.read_text().splitlines()])
    if path.suffix == ".npz":
        with np.load(path) as archive:
            (only,) = archive.values()
            return len(only)
    if (path / "metadata.yaml").is_file():
        from rosbags.highlevel import AnyReader

        with AnyReader([path]) as reader:
            return sum(1 for _ in reader.messages())
    return len(list(path.glob("*.npz"))) if path.is_dir() else len(read(path)[0])
