"""A second model on each box: an application against the same written as a loop over ONNX Runtime.

The detector has the layers of YOLOX-nano, the classifier those of MobileNetV2; both have random weights, so that the
boxes are drawn: from none to eight, four in the mean, the same for both sides.  The loop takes one picture after the
other: prepare, detect, cut, prepare each crop, classify it; ONNX Runtime has two threads.  Both sides prepare by the
same kernel.  Rounds take turns.

The loop runs in two ways.  By default threads of a session spin after a run, and take the cores from the other
session; without that the loop is faster, and what is compared is that.

app_frames_per_s             our application, each model as the fastest plan has it on the cores
loop_frames_per_s            the loop, whose threads do not spin
default_loop_frames_per_s    the loop with ONNX Runtime's own options
ratio, default_ratio         ours over each of them, of the medians
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import published_models
from mobilenet import model as mobilenet
from report import Row, median, parser, report

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.app.application import App
from pipeline.app.crops import box_regions, cut
from pipeline.app.nodes import Function, Model, Stream
from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.io.results import Detections
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput

WIDTH, HEIGHT, MOST = 640, 480, 8
THREADS = 2


class Pictures(FrameSource):
    """The same pictures for both sides."""

    owns_memory = True

    def __init__(self, pictures: Sequence[np.ndarray]) -> None:
        self._pictures = pictures

    def __iter__(self) -> Any:
        for number, picture in enumerate(self._pictures):
            yield SourceFrame(str(number), picture, number * SECOND // 30, pixels=Pixels("rgb24", WIDTH, HEIGHT))


def boxes_of(number: int) -> Detections:
    """Return the boxes of a picture: none to eight."""
    generator = np.random.default_rng(number)
    count = int(generator.integers(MOST + 1))
    corners = generator.uniform(0, (WIDTH - 100, HEIGHT - 100), (count, 2))
    sides = generator.uniform(40, 200, (count, 2))
    boxes = np.concatenate([corners, np.minimum(corners + sides, (WIDTH, HEIGHT))], 1).astype(np.float32)
    return Detections(boxes, np.linspace(0.9, 0.5, count, dtype=np.float32), np.zeros(count, np.int64), ("thing",))


def draw_boxes(frame: AppFrame, _: Any) -> Detections:
    """Return a frame's boxes, in place of a decoder's."""
    return boxes_of(int(frame.frame.name))


def make_application(detector: Path, classifier: Path) -> tuple[App, dict[str, Bundle]]:
    """Return the application, and its models' bundles."""
    app = App(
        {"camera": Stream(source="-")},
        {
            "detector": Model(file=str(detector)),
            "boxes": Function(call="drawn", reads=("detector",)),
            "classifier": Model(file=str(classifier), reads=("boxes",), for_each="boxes"),
        },
    )
    bundles = {}
    for name, path in (("detector", detector), ("classifier", classifier)):
        graph = pipeline.read(path)
        bundles[name] = pipeline.build(graph, pipeline.plan(graph, board="host", objective="throughput"))
    return app, bundles


def run_application(app: App, bundles: dict[str, Bundle], pictures: Sequence[np.ndarray]) -> float:
    """Return the seconds that all pictures take."""
    running = pipeline.load_app(
        app, sources={"camera": Pictures(pictures)}, bundles=bundles, functions={"drawn": draw_boxes}
    )
    with running:
        begin = time.perf_counter()
        books = running.run()
        seconds = time.perf_counter() - begin
    if running.first_failure is not None:
        raise running.first_failure
    assert books["camera"].delivered == len(pictures)
    return seconds


def make_loop(detector: Path, classifier: Path, *, spins: bool) -> Callable[[Sequence[np.ndarray]], float]:
    """Return the loop over two sessions of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    sessions = [
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for path in (detector, classifier)
    ]
    specs = [TensorSpec(session.get_inputs()[0].name, tuple(session.get_inputs()[0].shape)) for session in sessions]
    inputs = [PictureInput(spec, Preparation()) for spec in specs]

    def loop(pictures: Sequence[np.ndarray]) -> float:
        begin = time.perf_counter()
        for number, picture in enumerate(pictures):
            sessions[0].run(None, {inputs[0].spec.name: inputs[0].prepare(picture)[0]})
            boxes = boxes_of(number)
            for region in box_regions(boxes, range(len(boxes))):
                crop = inputs[1].prepare(cut(picture, region).picture)[0]
                sessions[1].run(None, {inputs[1].spec.name: crop})
        return time.perf_counter() - begin

    return loop


def main() -> None:
    """Measure both sides in turn, and report."""
    options = parser(__doc__).parse_args()
    count, rounds = (40, 3) if options.quick else (150, 7)
    generator = np.random.default_rng(0)
    pictures = [generator.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        detector, classifier = Path(folder) / "detector.onnx", Path(folder) / "classifier.onnx"
        onnx.save(published_models.build("yolox_nano"), detector)
        onnx.save(mobilenet(), classifier)
        app, bundles = make_application(detector, classifier)
        sides: dict[str, list[float]] = {"app": [], "loop": [], "default_loop": []}
        for number in range(rounds + 1):
            # Sessions are made anew: idle ones of the other way would have threads as well.
            seconds = (
                run_application(app, bundles, pictures),
                make_loop(detector, classifier, spins=False)(pictures),
                make_loop(detector, classifier, spins=True)(pictures),
            )
            # The first round loads.
            for rates, side_s in zip(sides.values(), seconds, strict=True) if number else ():
                rates.append(count / side_s)
    crops = sum(len(boxes_of(number)) for number in range(count)) / count
    row: Row = {
        "frames": count,
        "crops_per_frame": crops,
        **{f"{side}_frames_per_s": median(rates) for side, rates in sides.items()},
        "ratio": median(sides["app"]) / median(sides["loop"]),
        "default_ratio": median(sides["app"]) / median(sides["default_loop"]),
    }
    report("A detector, and a classifier on each box", [row], "ratio: ours over the loop", options.json)


if __name__ == "__main__":
    main()
