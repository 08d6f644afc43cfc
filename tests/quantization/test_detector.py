"""The demo's detector, quantised for VTA: the boxes of its floats, and the pipeline's on the simulated board."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.io.result_reader import ResultReader
from pipeline.io.results import Detections
from pipeline.quantization.loss import outputs
from pipeline.quantization.quantize import Frames, quantize

pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn")

from pipeline.demo import detector
from pipeline.demo.scenes import scenes
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage

BOARD = "ultra96-simulated"
LEAST_SCORE = 0.3
OVERLAP = 0.9


def make_frames(seed: int, count: int, *, training: bool = False) -> Frames:
    graph = pipeline.read(detector.FILE)
    assert graph.card is not None
    assert graph.card.preparation is not None
    prepare = PreparationStage(Pixels("rgb24", 320, 240), PictureInput(graph.inputs[0], graph.card.preparation))
    return [{"image": prepare(scene.picture)} for scene in islice(scenes(seed, 320, 240, training=training), count)]


@pytest.fixture(scope="module")
def quantized_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The detector as ``quantize --board ultra96-simulated`` writes it."""
    path = tmp_path_factory.mktemp("detector") / "int8.onnx"
    quantize(detector.FILE, make_frames(99, 40, training=True), path, board=BOARD)
    return path


def read_boxes(path: Path, results: Iterable[Any]) -> list[Detections]:
    graph = pipeline.read(path)
    assert graph.card is not None
    reader = ResultReader(pipeline.plan(graph, stages=1), graph.card)
    found = [reader.read({graph.outputs[0].name: np.asarray(result)}, None, None) for result in results]
    assert all(isinstance(result, Detections) for result in found)
    return found  # type: ignore[return-value]


def share(boxes: Sequence[Detections], references: Sequence[Detections]) -> float:
    """Return the share of boxes of score above 0.3 with a reference of their class at almost their place."""
    matches = [
        detector.match(result, reference, OVERLAP)[result.scores > LEAST_SCORE]
        for result, reference in zip(boxes, references, strict=True)
    ]
    return float(np.concatenate(matches).mean())


def test_nearly_all_boxes_are_those_of_the_floats(quantized_detector: Path) -> None:
    frames = make_frames(7, 40)
    original = read_boxes(detector.FILE, outputs(detector.FILE, frames))
    quantized = read_boxes(quantized_detector, outputs(quantized_detector, frames, fused=False))
    assert min(share(original, quantized), share(quantized, original)) >= 0.97


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_98_percent_of_the_boxes_of_200_scenes_are_the_same_on_the_board(quantized_detector: Path) -> None:
    frames = make_frames(7, 200)
    graph = pipeline.read(quantized_detector)
    plan = pipeline.plan(graph, BOARD)
    assert [stage.device for stage in plan.stages] == ["cpu", "vta-simulated", "cpu"]
    with pipeline.load(pipeline.build(graph, plan)) as running:
        quantized = read_boxes(quantized_detector, running.map(frames))
    original = read_boxes(detector.FILE, outputs(detector.FILE, frames))
    shares = share(original, quantized), share(quantized, original)
    print(f"boxes in common: {shares[0]:.2%} and {shares[1]:.2%}")
    assert min(shares) >= 0.98
