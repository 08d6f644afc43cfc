"""Products of which only the weights are quantised: as LiteRT's default kernels compute them, in all forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from tests.frontends.tflite.test_tflite import Writer

FORMS: dict[str, dict[str, Any]] = {
    "FULLY_CONNECTED": {"options": "FullyConnectedOptions"},
    "CONV_2D": {"options": "Conv2DOptions", "padding": 0, "strideW": 2, "strideH": 1},
    "DEPTHWISE_CONV_2D": {"options": "DepthwiseConv2DOptions", "padding": 1, "strideW": 1, "strideH": 1},
}
SHAPES = {
    "FULLY_CONNECTED": ((3, 64), (24, 64), (3, 24)),
    "CONV_2D": ((1, 9, 8, 6), (24, 3, 3, 6), (1, 9, 4, 24)),
    "DEPTHWISE_CONV_2D": ((1, 9, 8, 24), (1, 3, 3, 24), (1, 7, 6, 24)),
}
VERSIONS = {"FULLY_CONNECTED": 9, "CONV_2D": 5, "DEPTHWISE_CONV_2D": 6}


def model(folder: Path, kind: str, *, per_channel: bool, **changes: Any) -> Path:
    random = np.random.default_rng(0)
    shape, kernel_shape, result_shape = SHAPES[kind]
    writer = Writer(*shape)
    kernel = writer.constant("kernel", random.integers(-127, 127, kernel_shape).astype(np.int8), 0.002)
    if per_channel:
        quantization = writer.graph.tensors[kernel].quantization
        quantization.scale = random.uniform(0.001, 0.003, 24).astype(np.float32).tolist()
        quantization.zeroPoint = [0] * 24
        quantization.quantizedDimension = 3 if kind == "DEPTHWISE_CONV_2D" else 0
    bias = writer.constant("bias", random.standard_normal(24).astype(np.float32))
    dilation = {} if kind == "FULLY_CONNECTED" else {"dilationWFactor": 1, "dilationHFactor": 1}
    multiplier = {"depthMultiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    options = FORMS[kind] | dilation | multiplier | changes
    result = writer.add(kind, [0, kernel, bias], writer.tensor("y", result_shape), **options)
    writer.model.operatorCodes[-1].version = VERSIONS[kind]
    return writer.save(folder / "hybrid.tflite", result)


@pytest.mark.parametrize(
    ("kind", "per_channel", "changes"),
    [
        ("FULLY_CONNECTED", False, {}),
        ("FULLY_CONNECTED", False, {"asymmetricQuantizeInputs": True}),
        ("FULLY_CONNECTED", True, {"fusedActivationFunction": 1}),
        ("FULLY_CONNECTED", True, {"asymmetricQuantizeInputs": True, "fusedActivationFunction": 3}),
        ("CONV_2D", False, {}),
        ("CONV_2D", True, {"fusedActivationFunction": 1}),
        ("DEPTHWISE_CONV_2D", True, {}),
    ],
    ids=str,
)
def test_a_form(tmp_path: Path, kind: str, per_channel: bool, changes: dict[str, Any]) -> None:
    path = model(tmp_path, kind, per_channel=per_channel, **changes)
    graph = pipeline.read(path)
    assert not graph.islands
    random = np.random.default_rng(1)
    shape = SHAPES[kind][0]
    frames = [random.standard_normal(shape), random.random(shape) + 3, -random.random(shape) - 2, np.zeros(shape)]
    frames.append(np.where(random.random(shape) < 0.5, 1e-20, 7.0))
    result = pipeline.verify(graph, path, tolerance=2e-6, frames=[frame.astype(np.float32) for frame in frames])
    assert result.reference == "LiteRT"


def test_many_in_a_row_differ_by_a_step_of_the_rows_between(tmp_path: Path) -> None:
    """A last bit before may round a value of the next row to the next integer: 1/255 of the row's range."""
    writer, last = Writer(1, 64), 0
    random = np.random.default_rng(0)
    for number in range(8):
        kernel = writer.constant(f"kernel{number}", random.integers(-127, 127, (64, 64)).astype(np.int8), 0.002)
        dense = writer.tensor(f"dense{number}", (1, 64))
        last = writer.add("FULLY_CONNECTED", [last, kernel, -1], dense, options="FullyConnectedOptions")
        writer.model.operatorCodes[-1].version = 3
    path = writer.save(tmp_path / "m.tflite", writer.add("TANH", [last], writer.tensor("y", (1, 64))))
    graph = pipeline.read(path, fallback=False)
    assert pipeline.verify(graph, path, tolerance=5e-3).relative < 5e-3
    pipeline.build(graph, pipeline.plan(graph, stages=2))


def test_a_depthwise_convolution_of_one_scale_is_litert_s(tmp_path: Path) -> None:
    """LiteRT reads a scale for each channel, also where there is only one."""
    graph = pipeline.read(model(tmp_path, "DEPTHWISE_CONV_2D", per_channel=False))
    assert [island.reason for island in graph.islands] == ["its weights have a single scale"]
