"""Cost to stream pictures; `pictures.py` has that of making them a model's input.

stream   a lossless video file through one stage that changes nothing and back into a lossless file, against the same
         decoder and encoder alone in a loop.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
from report import Row, median, parser, report

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.io.sinks.encoders import Encoding
from pipeline.io.sinks.video import Video
from pipeline.io.sources.video import VideoFile
from pipeline.io.stream import FrameStream


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds = 5 if options.quick else 15
    rows = [stream(60 if options.quick else 300, rounds // 5)]
    report("Streams", rows, __doc__ or "", options.json)


def stream(count: int, rounds: int) -> Row:
    """Return the pace through a pipeline beside that of the codec alone."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.mkv", Path(folder) / "out.mkv"
        write(source, count)
        pairs = [
            (copy_through_pipeline(source, target), copy_with_codec(source, target)) for _ in range(max(3, rounds))
        ]
    ours, theirs = (median([count / pair[side] for pair in pairs]) for side in (0, 1))
    return {
        "case": "stream",
        "picture": "640x480",
        "frames_per_s": ours,
        "codec_frames_per_s": theirs,
        "ratio": ours / theirs,
    }


def write(path: Path, count: int) -> None:
    # Noise is a lossless codec's most expensive picture; FFV1 codes each frame alone, so equal ones cost the same.
    frame = av.VideoFrame.from_ndarray(np.random.default_rng(0).integers(0, 256, (720, 640), np.uint8), "yuv420p")
    with av.open(str(path), "w") as container:
        video: Any = container.add_stream("ffv1", rate=30, width=640, height=480)
        video.pix_fmt = "yuv420p"
        for number in range(count):
            frame.pts = number
            container.mux(video.encode(frame))
        container.mux(video.encode())


def copy_through_pipeline(source: Path, target: Path) -> float:
    begin = time.perf_counter()
    with VideoFile(source) as frames, Video(target, Encoding("ffv1")) as results:
        spec = frames.pixels.spec("x")
        stage = StagePlan("same", "nothing", (spec,), (TensorSpec("y", spec.shape, "uint8"),))
        plan = Plan("identity", "", Board("bench", (Device("nothing", "null"),)), (spec,), stage.outputs, (stage,))
        with pipeline.load(Bundle(plan, [None])) as running:
            FrameStream(running, frames, results).run()
    return time.perf_counter() - begin


def copy_with_codec(source: Path, target: Path) -> float:
    begin = time.perf_counter()
    with av.open(str(source)) as reading, av.open(str(target), "w") as writing:
        video: Any = writing.add_stream("ffv1", rate=30, width=640, height=480)
        video.pix_fmt = "yuv420p"
        # As our source of files has it.
        reading.streams.video[0].thread_type = "AUTO"
        for frame in reading.decode(video=0):
            frame.pts = None
            writing.mux(video.encode(frame))
        writing.mux(video.encode())
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
