"""Constants that layers share are quantised for each layer, with any scales and with powers of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.quantization import loss
from pipeline.quantization.onnx_model import load
from pipeline.quantization.quantize import quantize
from tests.support.onnx_models import node, save, weights

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CONSTANTS = {
    "w": weights(8, 8, 3, 3) / 8, "d": weights(8, 8) / 2, "b": weights(8), "other": weights(8, seed=1),
    "number": weights(1), "row": weights(1, 8),
}  # fmt: skip


def convolution(operands: str, result: str, name: str = "", kind: str = "Conv") -> Any:
    return node(kind, operands, result, name, pads=[1] * 4)


NETWORKS = {
    "bias": [convolution("x w b", "c", "1"), node("Relu", "c", "r", "2"), convolution("r w b", "y", "3")],
    "bias without names": [convolution("x w b", "c"), node("Relu", "c", "r", ""), convolution("r w b", "y")],
    "bias thrice": [convolution("x w b", "c"), convolution("c w b", "e"), convolution("e w b", "y")],
    "weights along two axes": [convolution("x w b", "c", "1"), convolution("c w other", "y", "2", "ConvTranspose")],
    "bias beside an addend": [
        convolution("x w b", "c", "1"), node("GlobalAveragePool", "c", "p", "2"), node("Flatten", "p", "f", "3"),
        node("Add", "f b", "y", "4"),
    ],
    "product and transposed product": [node("MatMul", "v d", "c", "1"), node("Gemm", "c d b", "y", "2", transB=1)],
    "product with two biases": [node("Gemm", "v d b", "c", "1"), node("Gemm", "c d b", "y", "2")],
    "scaled bias": [node("Gemm", "v d b", "c", "1", beta=0.25), node("Gemm", "c d b", "y", "2", beta=-2.0)],
    "number as bias": [node("Gemm", "v d number", "y", "1")],
    "row as bias": [node("Gemm", "v d row", "y", "1", transB=1)],
}  # fmt: skip


def write(folder: Path, network: str, outputs: tuple[str, ...] = ("y",)) -> tuple[Path, list[dict[str, np.ndarray]]]:
    """Write a network, and return it with frames to calibrate with."""
    nodes = NETWORKS[network]
    read_names = {name for each in nodes for name in each.input}
    name, shape = ("v", (1, 8)) if "v" in read_names else ("x", (1, 8, 8, 8))
    constants = {key: value for key, value in CONSTANTS.items() if key in read_names}
    path = save(folder / "model.onnx", nodes, {name: shape}, ["y"], constants)
    model = onnx.load(path)
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(each, 1, CONSTANTS[each].shape) for each in outputs if each in CONSTANTS
    )
    onnx.save(model, path)
    return path, [{name: weights(*shape, seed=seed)} for seed in range(4)]


@pytest.mark.parametrize("power_of_two", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_constants_that_layers_share_keep_their_values(network: str, power_of_two: bool, tmp_path: Path) -> None:
    model, frames = write(tmp_path, network)
    quantize(model, frames, tmp_path / "int8.onnx", power_of_two=power_of_two)
    # With the scale of another layer, or without beta, it was below 14.
    assert loss.measure_loss(model, tmp_path / "int8.onnx", frames).signal_to_noise_db > (28 if power_of_two else 33)


def test_the_command_quantises_a_network_with_one_bias_for_all(tmp_path: Path) -> None:
    model, frames = write(tmp_path, "bias")
    np.save(tmp_path / "images.npy", np.stack([each["x"] for each in frames]))
    arguments = ["quantize", str(model), "--calibrate", str(tmp_path / "images.npy"), "--board", "ultra96-simulated"]
    assert main([*arguments, "-o", str(tmp_path / "int8.onnx")]) == 0
    biases = [
        each for each in load(tmp_path / "int8.onnx").graph.initializer if each.data_type == onnx.TensorProto.INT32
    ]
    assert sum(bool(onnx.numpy_helper.to_array(each).any()) for each in biases) == 2


@pytest.mark.parametrize("name", ["b", "w"])
@pytest.mark.parametrize("power_of_two", [False, True])
def test_a_constant_that_is_an_output_keeps_its_value(name: str, power_of_two: bool, tmp_path: Path) -> None:
    model, frames = write(tmp_path, "bias", ("y", name))
    quantize(model, frames, tmp_path / "int8.onnx", power_of_two=power_of_two)
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "int8.onnx")
    np.testing.assert_array_equal(session.run([name], frames[0])[0], CONSTANTS[name])
