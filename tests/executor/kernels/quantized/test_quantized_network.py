"""The demo's network, quantised by ONNX Runtime: as accurate as there, whole and in two stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import StagePlan
from pipeline.demo import digits
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.split import cuts, extract
from pipeline.split.graph import Graph
from tests.support.onnx_models import HOST

NETWORK = Path(digits.__file__).with_name("digits.onnx")
STEP = 0.11
"""More than one quantisation step of the network's answers."""

Run = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the network, quantised for images that it was trained with: signed, one scale for each channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._images: Iterator[np.ndarray] = iter(digits.training()[0][:64])

        def get_next(self) -> dict[str, np.ndarray] | None:
            image = next(self._images, None)
            return None if image is None else {"image": image}

    path: Path = tmp_path_factory.mktemp("quantised") / "digits.onnx"
    kind = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(NETWORK, path, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **kind)
    return path


def by_onnxruntime(model: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Kernels for bytes, which later optimisations choose, cut sums to 16 bits on processors with AVX2 and no more.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda image: np.asarray(session.run(None, {"image": image})[0])


def in_stages(graph: Graph, positions: Sequence[int]) -> Run:
    runtime = CpuRuntime(HOST)
    stages = []
    for part in extract.parts(graph, positions):
        stage = StagePlan("test", "cpu", part.inputs, part.outputs)
        stages.append((stage, runtime.load(stage, compile_stage(extract.module(part), HOST))))

    def run(image: np.ndarray) -> np.ndarray:
        live: dict[str, Any] = {"image": runtime.copy_in(image)}
        for stage, program in stages:
            outputs = runtime.run(program, [live[spec.name] for spec in stage.inputs])
            live |= {spec.name: tensor for spec, tensor in zip(stage.outputs, outputs, strict=True)}
        return np.array(runtime.copy_out(live[graph.outputs[0].name]))

    return run


def accuracy(answers: np.ndarray) -> float:
    return float(np.mean(answers.argmax(1) == digits.held_out()[1]))


@pytest.mark.parametrize(
    "cut",
    [pytest.param(None, marks=pytest.mark.slow), "block2.relu1_QuantizeLinear_Output"],
    ids=["whole", "two stages"],
)
def test_answers_are_those_of_onnxruntime(model: Path, cut: str | None) -> None:
    graph = pipeline.read(model)
    positions = [] if cut is None else cuts.resolve(graph, [cut])
    assert all(spec.dtype == "uint8" for part in extract.parts(graph, positions)[1:] for spec in part.inputs)
    run, reference = in_stages(graph, positions), by_onnxruntime(model)
    images = digits.held_out()[0]
    answers, expected = (np.concatenate([each(image) for image in images]) for each in (run, reference))
    assert np.mean(np.abs(answers - expected).max(1) <= STEP) > 0.95
    assert accuracy(answers) > 0.97
    assert abs(accuracy(answers) - accuracy(expected)) < 0.01
