"""A video through a detector into an annotated video, beside its parts.

    python bench/playing.py
    python bench/playing.py --model yolo.onnx --preset ultrafast

The scenes move, and are made here: handwritten digits, which the demo's detector finds.  Parts and stream take turns;
each figure is the best of the rounds, since what else runs on the machine only slows them down.

part    decode the file, prepare the picture, run the model, draw the result, encode the picture: each alone
stream  all of them, as `soc-pipeline run MODEL --source in.mp4 --sink 'out.mp4?show=boxes'` streams
ratio   frames per second of the stream over those of the slowest part, and of `simulate` for a plan with the parts as
        stages, which take turns on as many cores as there are: two cores cannot run five parts at once
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from report import Row, parser, report, usable_cores

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.demo.detector import FILE
from pipeline.demo.scenes import scenes
from pipeline.executor.bundle import Bundle
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.result_reader import make_reader
from pipeline.io.sinks.annotation import Annotator
from pipeline.io.sinks.encoders import Encoding
from pipeline.io.sinks.video import QUEUE, Video
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.io.sources.video import VideoFile
from pipeline.io.stream import FrameStream
from pipeline.picture.preparation import PictureInput, PreparationStage
from pipeline.scheduler.switch_interval import choose_interval
from pipeline.simulation import simulate

WIDTH, HEIGHT, FPS = 1920, 1080, 30
STEP = 6
"""Pixels that the scene moves from picture to picture."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, default=FILE, help="a detector with its card (default: the demo's)")
    options.add_argument("--encoder", default="", help="as the option of the sink")
    options.add_argument("--preset", default="", help="as the option of the sink")
    options.add_argument("--threads", type=int, default=1, help="of the decoder, and of the encoder (default: 1 each)")
    options.add_argument("--source", type=Path, help="a video of your own")
    arguments = options.parse_args()
    frames, rounds = (60, 2) if arguments.quick else (150, 5)
    encoding = Encoding(arguments.encoder, arguments.preset, threads=arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.source or write(Path(folder) / "in.mp4", frames)
        trial = Trial(load(arguments.model), source, Path(folder) / "out.mp4", frames, encoding)
        samples = [trial.measure() for _ in range(rounds)]
    best = {name: min(sample[name] for sample in samples) for name in samples[0]}
    report(f"Video of {WIDTH}x{HEIGHT}", rows(trial, best), (__doc__ or "").rpartition("\n\n")[2], arguments.json)


def write(path: Path, count: int) -> Path:
    """Write scenes that move under a little noise, as cameras have it."""
    random = np.random.default_rng(0)
    pictures = [scene.picture for scene in islice(scenes(5, WIDTH, HEIGHT), 4)]
    noise = [random.integers(-3, 4, (HEIGHT, WIDTH, 3), np.int16) for _ in range(3)]
    with av.open(str(path), "w") as container:
        video: Any = container.add_stream("libx264", rate=FPS, width=WIDTH, height=HEIGHT, options={"preset": "fast"})
        video.pix_fmt = "yuv420p"
        for number in range(count):
            # Each scene for a second.
            moved = np.roll(pictures[number // 30 % len(pictures)], STEP * number, axis=1)
            picture = np.clip(moved + noise[number % len(noise)], 0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
            frame.pts = number
            container.mux(video.encode(frame))
        container.mux(video.encode())
    return path


def load(model: Path) -> Bundle:
    """Build a model as `soc-pipeline run` does."""
    graph = pipeline.read(model)
    return pipeline.build(graph, pipeline.plan(graph))


@dataclass
class Trial:
    """One stream and its parts."""

    bundle: Bundle
    source: Path
    target: Path
    frames: int
    encoding: Encoding

    def measure(self) -> dict[str, float]:
        """Return the seconds per frame of each part, and of the stream."""
        seconds = {"decode": self._decode()}
        with self._open() as video:
            # All of them, since frames differ in what they cost: 3 MB each.
            frames = list(islice(video, self.frames))
            _, geometry = prepare_bundle(self.bundle, video.pixels, self._preparation)
            model = self.bundle.plan
            rules = PictureInput(model.inputs[0], self._preparation, model.quantization, self.bundle.pictures)
            prepare = PreparationStage(video.pixels, rules)
        seconds["prepare"], inputs = per_frame(prepare, [np.asarray(frame.inputs) for frame in frames])
        with pipeline.load(self.bundle) as running:
            seconds["model"], outputs = per_frame(lambda array: running.submit(array).outputs(), inputs)
        reader = make_reader(model, self._card)

        def draw(result: StreamFrame) -> tuple[Any, np.ndarray]:
            decoded = reader.read_frame(result.frame, result.outputs, geometry) if reader else None
            return Annotator().picture(replace(result, result=decoded))

        results = [StreamFrame(frame, output) for frame, output in zip(frames, outputs, strict=True)]
        seconds["draw"], pictures = per_frame(draw, results)
        drawn = [replace(frame, inputs=picture) for frame, (_, picture) in zip(frames, pictures, strict=True)]
        seconds["encode"] = self._encode(drawn)
        seconds["stream"] = self._stream()
        return seconds

    @property
    def _card(self) -> Any:
        return self.bundle.card

    @property
    def _preparation(self) -> Preparation:
        return self._card.preparation or Preparation()

    def _open(self) -> VideoFile:
        return VideoFile(self.source, threads=self.encoding.threads)

    def _decode(self) -> float:
        begin = time.perf_counter()
        with self._open() as video:
            count = sum(1 for _ in islice(video, self.frames))
        return (time.perf_counter() - begin) / count

    def _encode(self, frames: list[SourceFrame]) -> float:
        begin = time.perf_counter()
        with Video(self.target, self.encoding) as sink:
            for frame in frames:
                sink.add(StreamFrame(frame, {"none": np.zeros(1)}))
        return (time.perf_counter() - begin) / len(frames)

    def _stream(self) -> float:
        with self._open() as video:
            prepared, geometry = prepare_bundle(self.bundle, video.pixels, self._preparation)
            reader = make_reader(self.bundle.plan, self._card)
            # As `soc-pipeline run` does, so that threads of Python take turns often enough.
            with pipeline.load(prepared, switch_interval=choose_interval(prepared.plan)) as running:
                begin = time.perf_counter()
                with Video(self.target, self.encoding) as sink:
                    FrameStream(running, video, sink, limit=self.frames, reader=reader, geometry=geometry).run()
                return (time.perf_counter() - begin) / running.statistics().delivered


def per_frame(call: Callable[[Any], Any], frames: list[Any]) -> tuple[float, list[Any]]:
    """Return the seconds of a call, and all results."""
    call(frames[0])
    begin = time.perf_counter()
    results = [call(frame) for frame in frames]
    return (time.perf_counter() - begin) / len(frames), results


def rows(trial: Trial, best: dict[str, float]) -> list[Row]:
    """Return the parts, the slowest of them, the simulation and the stream."""
    parts = {name: seconds for name, seconds in best.items() if name != "stream"}
    simulation = simulate(plan(trial.bundle.plan, parts), frames=trial.frames)
    simulated = simulation.seconds / trial.frames
    lines = {**parts, "slowest part": max(parts.values()), "simulated": simulated, "stream": best["stream"]}
    ratios = {name: lines[name] / best["stream"] for name in ("slowest part", "simulated")}
    return [
        {"part": name, "ms": seconds * 1e3, "frames_per_s": 1 / seconds, "ratio": ratios.get(name)}
        for name, seconds in lines.items()
    ]


def plan(model: Plan, parts: dict[str, float]) -> Plan:
    """Return the parts as stages that take turns on the machine's cores, the model with its replicas."""
    specs = [TensorSpec(name, (1,)) for name in ("file", *parts)]
    # A server's slots take turns as the threads of a process do, on whatever core is free.
    cores = Device("cores", "remote", address="remote://localhost:9190/cpu", slots=len(usable_cores()))
    # Stages and replicas alike work on as many frames at once.
    replicas = {"model": sum(stage.replicas for stage in model.stages)}
    stages = tuple(
        StagePlan(
            name,
            "cores",
            (before,),
            (after,),
            seconds=parts[name],
            replicas=replicas.get(name, 1),
            queue_depth=QUEUE if name == "encode" else 2,
        )
        for name, before, after in zip(parts, specs, specs[1:], strict=False)
    )
    return Plan("video", "", Board("bench", (cores,)), tuple(specs[:1]), tuple(specs[-1:]), stages)


if __name__ == "__main__":
    main()
