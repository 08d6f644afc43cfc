"""ONNX operators that TVM imports wrongly without a word are right, or refused; data files are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import pipeline
from pipeline import cli
from pipeline.errors import BuildError, ModelError
from tests.support.onnx_models import (
    KERNEL,
    NORM,
    assert_close,
    batch_norm,
    by_onnxruntime,
    frame,
    in_stages,
    node,
    save,
    weights,
)

pytestmark = pytest.mark.thorough


def check_outputs(path: Path, values: Any = None) -> None:
    graph = pipeline.read(path)
    values = values or frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize("target", [[2, 1, 6], [1, 3, 1], [3, 1], [4, 2, 3, 6]], ids=str)
def test_expand_to_a_smaller_extent(tmp_path: Path, target: list[int]) -> None:
    nodes = [node("Expand", "x s", "e"), node("Neg", "e", "y")]
    shape = (1, 3, 6) if target[0] == 2 else (2, 3, 6)
    check_outputs(save(tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], {"s": np.array(target)}))


@pytest.mark.parametrize("signs", [{"detect_negative": 0}, {"detect_positive": 0}, {}], ids=str)
def test_infinities_of_one_sign(tmp_path: Path, signs: dict[str, Any]) -> None:
    path = save(
        tmp_path / "m.onnx", [node("IsInf", "x", "y", **signs)], {"x": (5,)}, ["y"], dtypes={"y": TensorProto.BOOL}
    )
    check_outputs(path, {"x": np.array([np.inf, -np.inf, np.nan, 0, 1], np.float32)})


def check_choices(path: Path, values: dict[str, np.ndarray]) -> None:
    """Compare what is not rounded, NaN and infinities included."""
    output = in_stages(pipeline.read(path), [], values)["y"]
    reference = by_onnxruntime(path, values)["y"]
    assert output.dtype == reference.dtype
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("attributes", [{}, {"alpha": -0.5}], ids=str)
def test_a_threshold_of_infinities(tmp_path: Path, attributes: dict[str, Any]) -> None:
    path = save(tmp_path / "m.onnx", [node("ThresholdedRelu", "x", "y", **attributes)], {"x": (7,)}, ["y"])
    check_choices(path, {"x": np.array([np.inf, -np.inf, np.nan, 0, 1, 2, -0.5], np.float32)})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int32])
def test_signs(tmp_path: Path, dtype: type) -> None:
    kinds = dict.fromkeys(("x", "y"), onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    path = save(tmp_path / "m.onnx", [node("Sign", "x", "y")], {"x": (6,)}, ["y"], dtypes=kinds)
    special_values = [np.nan, np.inf, -np.inf] if np.dtype(dtype).kind == "f" else [0, 2, -2]
    check_choices(path, {"x": np.array([*special_values, 0, 3, -3], dtype)})


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_all_bits(tmp_path: Path, direction: str) -> None:
    nodes = [node("BitShift", "x n", "y", direction=direction)]
    kinds = dict.fromkeys(("x", "n", "y"), TensorProto.UINT8)
    path = save(tmp_path / "m.onnx", nodes, {"x": (5,), "n": (5,)}, ["y"], dtypes=kinds)
    graph = pipeline.read(path)
    values = {"x": np.full(5, 255, np.uint8), "n": np.array([0, 3, 7, 8, 200], np.uint8)}
    output = in_stages(graph, [], values)["y"]
    assert output.tolist() == ([255, 248, 128, 0, 0] if direction == "LEFT" else [255, 31, 1, 0, 0])


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "message"),
    [
        (
            [node("RoiAlign", "x r i", "y", "rois", mode="max")],
            {"x": (1, 1, 8, 8), "r": (2, 4)},
            {"i": np.zeros(2, np.int64)},
            r"RoiAlign of largest values \(node 'rois'\)",
        ),
        (
            [node("RoiAlign", "x r i", "y", "rois")],
            {"x": (1, 1, 8, 8), "r": (2, 4)},
            {"i": np.zeros(2, np.int64)},
            r"RoiAlign with a number of samples that depends on values \(node 'rois'\)",
        ),
    ],
    ids=["RoiAlign of largest values", "RoiAlign of any number of samples"],
)
def test_what_is_refused(tmp_path: Path, nodes: Any, inputs: Any, constants: Any, message: str) -> None:
    with pytest.raises(ModelError, match=f"uses operators that are not supported: {message}"):
        pipeline.read(save(tmp_path / "m.onnx", nodes, inputs, ["y"], constants), fallback=False)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_scaled_regions(tmp_path: Path, opset: int, scale: float) -> None:
    operator = node("RoiAlign", "x r i", "y", sampling_ratio=2, spatial_scale=scale, output_height=2, output_width=3)
    values = {
        "x": np.arange(128, dtype=np.float32).reshape(1, 2, 8, 8),
        "r": np.array([[0, 0, 9, 8], [3, 2, 14, 15]], np.float32),
    }
    shapes = {name: array.shape for name, array in values.items()}
    constants = {"i": np.zeros(2, np.int64)}
    check_outputs(save(tmp_path / "m.onnx", [operator], shapes, ["y"], constants, opset=opset), values)


@pytest.fixture
def with_data(tmp_path: Path) -> Path:
    path = save(tmp_path / "m.onnx", [node("MatMul", "x w", "y")], {"x": (2, 64)}, ["y"], {"w": weights(64, 64)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_a_data_file(with_data: Path) -> None:
    assert pipeline.read(with_data, verify=True).parameter_bytes == 64 * 64 * 4


def test_a_missing_data_file(with_data: Path) -> None:
    (with_data.parent / "m.data").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w' in the data file 'm.data', which is not there; put it into"):
        pipeline.read(with_data)


@pytest.mark.parametrize("size", [0, 1000, 16383])
def test_a_truncated_data_file(with_data: Path, size: int) -> None:
    data = with_data.parent / "m.data"
    data.write_bytes(data.read_bytes()[:size])
    with pytest.raises(ModelError, match=rf"has {size} bytes where at least 16384 are needed; copy it again"):
        pipeline.read(with_data)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 17, 19, 21, 23])
def test_opsets(tmp_path: Path, opset: int) -> None:
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4), batch_norm(1, "c", "n"), node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", "p", "f"),
        node("MatMul", "f g", "m"), node("Softmax", "m", "y", axis=1),
    ]  # fmt: skip
    path = save(
        tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {**KERNEL, **NORM, "g": weights(36, 5)}, opset=opset
    )
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5


def test_verification_finds_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "m.onnx", [node("Elu", "x", "y", alpha=0.5)], {"x": (4, 4)}, ["y"])
    second = save(tmp_path / "other.onnx", [node("Elu", "x", "y", alpha=0.6)], {"x": (4, 4)}, ["y"])
    graph = pipeline.read(path, verify=True)
    message = r"model 'm' differs from ONNX Runtime: output 'y' by 0.* allowed is 0.0001"
    with pytest.raises(BuildError, match=message) as failure:
        pipeline.verify(graph, second)
    assert failure.value.exit_status == 1
    assert pipeline.verify(graph, second, tolerance=0.9).relative > 0.01
    assert cli.main(["inspect", str(path), "--verify"]) == 0
    assert "against ONNX Runtime: largest error" in capsys.readouterr().out


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { negative(%x) }')
    with pytest.raises(ModelError, match="a Relay program cannot be verified: no other library runs it"):
        pipeline.read(tmp_path / "m.relay", verify=True)
