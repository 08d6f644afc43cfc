"""A video through a detector into an annotated video, beside its parts.

    python bench/playing.py
    python bench/playing.py --model yolo.onnx --preset ultrafast

The scenes move, and are made here: handwritten digits, which the demo's detector finds.  Parts and stream take turns;
each figure is the median of the rounds, and each ratio that of the rounds' ratios.

part    decode the file, prepare the picture, run the model, draw the result, encode the picture: each alone,
        on all cores, since what they share slows each of them down in the stream as well
stream  all of them, as `soc-pipeline run MODEL --source in.mp4 --sink 'out.mp4?show=boxes'` streams
cpu_ms  processor time per frame, of the decoder's and the encoder's own threads as well
ratio   frames per second of the stream over those of the slowest part, and of `simulate` for a plan with the parts as
        stages of their processor times, which take turns on as many cores as there are: two cores cannot run five
        parts at once, nor an encoder of two threads beside a decoder of two
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from report import Row, median, parser, report, usable_cores

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
EXPECTED = ("slowest part", "simulated")
"""Rows that the stream is compared with."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, default=FILE, help="a detector with its card (default: the demo's)")
    options.add_argument("--encoder", default="", help="as the option of the sink")
    options.add_argument("--preset", default="", help="as the option of the sink")
    options.add_argument(
        "--threads", type=int, default=0, help="of decoder and encoder each (default: as suits the processor)"
    )
    options.add_argument("--source", type=Path, help="a video of your own")
    arguments = options.parse_args()
    frames, rounds = (60, 3) if arguments.quick else (100, 9)
    encoding = Encoding(arguments.encoder, arguments.preset, threads=arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.source or write(Path(folder) / "in.mp4", frames)
        trial = Trial(load(arguments.model), source, Path(folder) / "out.mp4", frames, encoding)
        samples = [trial.measure() for _ in range(rounds)]
    report(f"Video of {WIDTH}x{HEIGHT}", rows(trial, samples), (__doc__ or "").rpartition("\n\n")[2], arguments.json)


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


@dataclass(frozen=True, order=True)
class Cost:
    """Seconds per frame: by the clock, and of the process on all cores."""

    wall_s: float
    cpu_s: float


class CostTimer:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def cost(self, frames: int) -> Cost:
        """Return the cost of each of the frames since then."""
        return Cost((time.perf_counter() - self._wall_s) / frames, (time.process_time() - self._cpu_s) / frames)


@dataclass
class Trial:
    """One stream and its parts."""

    bundle: Bundle
    source: Path
    target: Path
    frames: int
    encoding: Encoding

    def measure(self) -> dict[str, Cost]:
        """Return the cost per frame of each part, and of the stream."""
        costs = {"decode": self._decode()}
        with self._open() as video:
            # All of them, since frames differ in what they cost: 3 MB each.
            frames = list(islice(video, self.frames))
            _, geometry = prepare_bundle(self.bundle, video.pixels, self._preparation)
            model = self.bundle.plan
            rules = PictureInput(model.inputs[0], self._preparation, model.quantization, self.bundle.pictures)
            prepare = PreparationStage(video.pixels, rules)
        costs["prepare"], inputs = per_frame(prepare, [np.asarray(frame.inputs) for frame in frames])
        with pipeline.load(self.bundle) as running:
            costs["model"], outputs = per_frame(lambda array: running.submit(array).outputs(), inputs)
        reader = make_reader(model, self._card)

        def draw(result: StreamFrame) -> np.ndarray:
            decoded = reader.read_frame(result.frame, result.outputs, geometry) if reader else None
            return Annotator().picture(replace(result, result=decoded))[1]

        results = [StreamFrame(frame, output) for frame, output in zip(frames, outputs, strict=True)]
        # Without keeping them: fresh pages for each picture would cost more than those of an earlier one.
        costs["draw"], _ = per_frame(lambda result: len(draw(result)), results)
        costs["encode"] = self._encode([replace(result.frame, inputs=draw(result)) for result in results])
        costs["stream"] = self._stream()
        return costs

    @property
    def _card(self) -> Any:
        return self.bundle.card

    @property
    def _preparation(self) -> Preparation:
        return self._card.preparation or Preparation()

    def _open(self) -> VideoFile:
        return VideoFile(self.source, threads=self.encoding.threads)

    def _decode(self) -> Cost:
        timer = CostTimer()
        with self._open() as video:
            count = sum(1 for _ in islice(video, self.frames))
        return timer.cost(count)

    def _encode(self, frames: list[SourceFrame]) -> Cost:
        timer = CostTimer()
        with Video(self.target, self.encoding) as sink:
            for frame in frames:
                sink.add(StreamFrame(frame, {"none": np.zeros(1)}))
        return timer.cost(len(frames))

    def _stream(self) -> Cost:
        with self._open() as video:
            prepared, geometry = prepare_bundle(self.bundle, video.pixels, self._preparation)
            reader = make_reader(self.bundle.plan, self._card)
            # As `soc-pipeline run` does, so that threads of Python take turns often enough.
            with pipeline.load(prepared, switch_interval=choose_interval(prepared.plan)) as running:
                timer = CostTimer()
                with Video(self.target, self.encoding) as sink:
                    FrameStream(running, video, sink, limit=self.frames, reader=reader, geometry=geometry).run()
                return timer.cost(running.statistics().delivered)


def per_frame(call: Callable[[Any], Any], frames: list[Any]) -> tuple[Cost, list[Any]]:
    """Return the cost of a call while the other cores are as busy, and all results."""
    call(frames[0])
    cores = len(usable_cores())
    with ThreadPoolExecutor(cores) as pool:
        timer = CostTimer()
        results = list(pool.map(call, frames))
        cost = timer.cost(len(frames))
    return replace(cost, wall_s=cost.wall_s * cores), results


def rows(trial: Trial, samples: list[dict[str, Cost]]) -> list[Row]:
    """Return the parts, the slowest of them, the simulation and the stream."""
    rounds = [lines(trial, sample) for sample in samples]
    return [
        {
            "part": name,
            "ms": median([each[name].wall_s for each in rounds]) * 1e3,
            "cpu_ms": median([each[name].cpu_s for each in rounds]) * 1e3,
            "frames_per_s": 1 / median([each[name].wall_s for each in rounds]),
            "ratio": median([each[name].wall_s / each["stream"].wall_s for each in rounds])
            if name in EXPECTED
            else None,
        }
        for name in rounds[0]
    ]


def lines(trial: Trial, sample: dict[str, Cost]) -> dict[str, Cost]:
    """Return a round's costs with what they let expect of the stream."""
    parts = {name: cost for name, cost in sample.items() if name != "stream"}
    seconds = simulate(plan(trial, parts), frames=trial.frames).seconds / trial.frames
    simulated = Cost(seconds, sum(cost.cpu_s for cost in parts.values()))
    return {**parts, **dict(zip(EXPECTED, (max(parts.values()), simulated), strict=True)), "stream": sample["stream"]}


def plan(trial: Trial, parts: dict[str, Cost]) -> Plan:
    """Return the parts as stages that take turns on the machine's cores, each with its threads or replicas."""
    specs = [TensorSpec(name, (1,)) for name in ("file", *parts)]
    # A server's slots take turns as the threads of a process do, on whatever core is free.
    cores = Device("cores", "remote", address="remote://localhost:9190/cpu", slots=len(usable_cores()))
    # Stages and replicas alike work on as many frames at once, and so do the threads of a decoder or an encoder.
    replicas = {"model": sum(stage.replicas for stage in trial.bundle.plan.stages)}
    replicas |= dict.fromkeys(("decode", "encode"), trial.encoding.threads or len(usable_cores()))
    stages = tuple(
        StagePlan(
            name,
            "cores",
            (before,),
            (after,),
            seconds=parts[name].cpu_s,
            replicas=replicas.get(name, 1),
            queue_depth=QUEUE if name == "encode" else 2,
        )
        for name, before, after in zip(parts, specs, specs[1:], strict=False)
    )
    return Plan("video", "", Board("bench", (cores,)), tuple(specs[:1]), tuple(specs[-1:]), stages)


if __name__ == "__main__":
    main()
