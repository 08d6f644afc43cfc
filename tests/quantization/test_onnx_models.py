"""Old ONNX models, and those with open shapes, are quantised, or refused with a reason and without a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.card_file import CARD_KEY
from pipeline.core.model_card import Preparation
from pipeline.errors import ModelError
from pipeline.quantization import loss
from pipeline.quantization.onnx_model import load, read_ends
from pipeline.quantization.quantize import quantize
from tests.support import cards
from tests.support.onnx_models import Arrays, check_outputs, kinds, node, save, weights

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CONSTANTS = {"w": weights(8, 4, 3, 3) / 6, "b": weights(8), "d": weights(8, 10)}
NODES = [
    node("Conv", "x w b", "c", "conv", pads=[1] * 4),
    node("Relu", "c", "r", "relu"),
    node("GlobalAveragePool", "r", "g", "mean"),
    node("Flatten", "g", "f", "flat"),
    node("MatMul", "f d", "y", "dense"),
]
FRAMES = [{"x": weights(1, 4, 8, 8, seed=seed)} for seed in range(4)]


def model(folder: Path, *shape: int | str, opset: int = 17) -> Path:
    """Write a small classifier for images of a shape."""
    return save(folder / "model.onnx", NODES, {"x": shape or (1, 4, 8, 8)}, ["y"], CONSTANTS, opset=opset)


def extents(path: Path) -> list[int | str]:
    """Return the shape of a model's first input."""
    return [dim.dim_param or dim.dim_value for dim in load(path).graph.input[0].type.tensor_type.shape.dim]


def command(folder: Path, *options: str) -> list[str]:
    """Return the command for a model and images in a folder."""
    np.save(folder / "images.npy", np.stack([each["x"] for each in FRAMES]))
    arguments = ["quantize", str(folder / "model.onnx"), "--calibrate", str(folder / "images.npy"), *options]
    return [*arguments, "-o", str(folder / "int8.onnx")]


@pytest.mark.parametrize("power_of_two", [False, True])
@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13])
def test_models_of_old_versions_are_quantised(opset: int, power_of_two: bool, tmp_path: Path) -> None:
    output = tmp_path / "int8.onnx"
    quantize(model(tmp_path, opset=opset), FRAMES, output, power_of_two=power_of_two)
    assert loss.measure_loss(tmp_path / "model.onnx", output, FRAMES).signal_to_noise_db > 20
    assert "conv2d" in kinds(pipeline.read(output))


def test_what_cannot_be_converted_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [NODES[0], node("Scan", "c", "y", "scan")]
    graph = onnx.helper.make_graph(
        nodes,
        "test",
        [onnx.helper.make_tensor_value_info("x", 1, (1, 4, 8, 8))],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(CONSTANTS[name], name) for name in "wb"],
    )
    opsets = [onnx.helper.make_opsetid("", 8)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    assert main(command(tmp_path)) in (1, 2)
    assert "cannot be converted to version 13" in capsys.readouterr().err
    assert not (tmp_path / "int8.onnx").exists()


@pytest.mark.parametrize("power_of_two", [False, True])
def test_an_open_batch_remains_open(power_of_two: bool, tmp_path: Path) -> None:
    output = tmp_path / "int8.onnx"
    model(tmp_path, "N", 4, 8, 8)
    assert main(command(tmp_path, *(["--power-of-two"] if power_of_two else []))) == 0
    assert extents(output) == ["N", 4, 8, 8]
    (batch_results,) = loss.outputs(output, [{"x": np.concatenate([each["x"] for each in FRAMES])}], fused=False)
    frame_results = np.concatenate(loss.outputs(output, FRAMES, fused=False))
    np.testing.assert_array_equal(batch_results, frame_results)
    graph: Any = pipeline.read(output, {"x": (2, 4, 8, 8)})
    assert graph.inputs[0].shape == (2, 4, 8, 8)


def test_a_shape_for_an_open_model_is_that_of_the_quantised_one(tmp_path: Path) -> None:
    model(tmp_path, "N", 4, "H", "W")
    assert main(command(tmp_path, "--shape", "x=1,4,8,8", "--board", "ultra96-simulated")) == 0
    assert extents(tmp_path / "int8.onnx") == [1, 4, 8, 8]
    assert main(command(tmp_path, "--shape", "x=N,4,8,8")) == 0
    assert extents(tmp_path / "int8.onnx") == ["N", 4, 8, 8]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("", "open extents beside the batch; give them numbers, as in --shape x=...,4,...,..."),
        ("x=1,4,8", "has 4 extents, and 3 are given"),
        ("x=1,3,8,8", "has an extent of 4, and 3 is given"),
        ("images=1,4,8,8", "no input 'images'; it has x"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shape: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "N", 4, "H", "W")
    assert main(command(tmp_path, *(["--shape", shape] if shape else []))) in (1, 2)
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "int8.onnx").exists()


def test_two_extents_of_one_name_are_equal(tmp_path: Path) -> None:
    path = model(tmp_path, 1, 4, "S", "S")
    assert read_ends(path, {"x": (1, 4, 8, "S")}).inputs[0].shape == (1, 4, 8, 8)
    with pytest.raises(ModelError, match="'S' cannot be 8 and 9"):
        read_ends(path, {"x": (1, 4, 8, 9)})


def test_scalar_constants_are_dequantised(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "c s z", "f"), node("Mul", "x f", "y")]
    constants: Arrays = {"c": np.array(5, np.int8), "s": np.array(0.5, np.float32), "z": np.array(1, np.int8)}
    check_outputs(save(tmp_path / "model.onnx", nodes, {"x": (2, 3)}, ["y"], constants))


def test_photos_are_prepared_by_the_models_card_which_stays_with_it(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((8, 8, 3), 255, np.uint8)).save(tmp_path / "white.png")
    names = cards.onnx_model(tmp_path / "model.onnx", {CARD_KEY: '{"labels": ["a", "b"], "preparation": {"scale": 1}}'})
    output = tmp_path / "int8.onnx"
    command = ["quantize", str(names), "--calibrate", str(tmp_path / "white.png"), "-o", str(output)]
    # Options win, rule by rule.
    assert main([*command, "--scale", "255", "--fill", "0"]) == 0
    graph = pipeline.read(output)
    assert graph.card is not None
    assert graph.card.preparation == Preparation(scale=255, fill=0)
    assert graph.card.labels == ("a", "b")
    array = onnx.numpy_helper.to_array
    scales = [array(value) for value in load(output).graph.initializer if value.name.startswith("image")]
    assert max(float(scale.max()) for scale in scales if scale.dtype == np.float32) == pytest.approx(1, rel=0.01)
