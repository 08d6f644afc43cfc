"""Cost to read a picture, to make it a model's input, and to stream it.

prepare  yuv420p to float32 [1, 3, side, side], normalised: by FFmpeg's scaler and NumPy, as the stage does it, against
         Pillow and NumPy from RGB that was there already, and against the stage with other rules of resizing, which
         models may have been trained with.  `lock_share` is the part of the time in which the
         interpreter is held: by how much less another thread counts than beside one that hashes.
stream   a lossless video file through one stage that changes nothing and back into a lossless file, against the same
         decoder and encoder alone in a loop.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image
from report import Row, median, parser, percentile, report

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.model_card import SAMPLING, Preparation
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.io.sinks.encoders import Encoding
from pipeline.io.sinks.video import Video
from pipeline.io.sources.video import VideoFile
from pipeline.io.stream import FrameStream
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PreparationStage

CASES = ((640, 480, 224), (1920, 1080, 640))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds = 5 if options.quick else 15
    rows = [row for case in CASES for row in prepare(*case, rounds)]
    rows.append(stream(60 if options.quick else 300, rounds // 5))
    report("Pictures", rows, __doc__ or "", options.json)


def prepare(width: int, height: int, side: int, rounds: int) -> list[Row]:
    """Return how long each way takes."""
    random = np.random.default_rng(0)
    yuv = random.integers(0, 256, (height * 3 // 2, width), np.uint8)
    rgb = random.integers(0, 256, (height, width, 3), np.uint8)
    pixels, spec = Pixels("yuv420p", width, height), TensorSpec("x", (1, 3, side, side))
    stages = {
        rule: PreparationStage(pixels, spec, Preparation("stretch", MEAN, STD, sampling=rule)) for rule in SAMPLING
    }
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def pillow() -> np.ndarray:
        resized = np.asarray(Image.fromarray(rgb).resize((side, side), Image.Resampling.BILINEAR))
        return np.ascontiguousarray(((resized / np.float32(255) - mean) / std).transpose(2, 0, 1)[None])

    ways: dict[str, Callable[[], Any]] = {"stage": lambda: stages["average"](yuv), "pillow": pillow}
    ways |= {f"stage, {rule}": partial(stages[rule], yuv) for rule in SAMPLING if rule != "average"}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name] += [time_once(way) for _ in range(10)]
    picture = f"{width}x{height} to {side}x{side}"
    return [
        {
            "case": f"prepare: {name}",
            "picture": picture,
            "ms_p50": median(times[name]) * 1e3,
            "ms_p99": percentile(times[name], 0.99) * 1e3,
            "ratio": median(times[name]) / median(times["stage"]),
            "lock_share": lock_share(way),
        }
        for name, way in ways.items()
    ]


def time_once(way: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def lock_share(way: Callable[[], Any]) -> float:
    """Return the part of its time in which `way` holds the interpreter."""
    block = bytes(4_000_000)
    # Hashing works as hard, and holds nothing: the machine's other work is in both.  The two of a pair follow each
    # other, since what else runs changes within seconds; the median drops pairs between which it changed.
    pairs = [(count_beside(way), count_beside(lambda: hashlib.sha256(block))) for _ in range(7)]
    return 1 - median([held / free for held, free in pairs])


def count_beside(way: Callable[[], Any]) -> float:
    """Return how far this thread counts in a tenth of a second while another one repeats `way`."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            way()

    worker = threading.Thread(target=work)
    worker.start()
    number, end = 0, time.perf_counter() + 0.1
    while time.perf_counter() < end:
        number += 1
    stop.set()
    worker.join()
    return number


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
