"""``Resize`` in all its modes is what ONNX Runtime computes, also where TVM has other coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from pipeline.errors import ModelError
from pipeline.split.symbolic_model import OpenModel
from tests.support.onnx_models import by_onnxruntime, check_outputs, in_stages, kinds, node, save

pytestmark = pytest.mark.thorough

IMAGE = (1, 2, 5, 6)
SMALLER = {"sizes": np.array([1, 2, 1, 3])}
ROUNDED = {"scales": np.array([1, 1, 1.3, 0.45], np.float32)}
"""Scales that do not lead to whole sizes, which are rounded down."""

CROP = {"roi": np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 1.1], np.float32)}


def resize_model(
    path: Path,
    constants: dict[str, np.ndarray],
    shape: tuple[int | str, ...] = IMAGE,
    *,
    opset: int = 19,
    dtype: int = TensorProto.FLOAT,
    **attributes: Any,
) -> Path:
    inputs = " ".join(name if name in constants else "-" for name in ("roi", "scales", "sizes"))
    nodes = [node("Resize", f"x {inputs}", "y", "r", **attributes)]
    return save(path / "m.onnx", nodes, {"x": shape}, ["y"], constants, opset=opset, dtypes={"x": dtype, "y": dtype})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("constants", [SMALLER, ROUNDED], ids=["to one row", "rounded sizes"])
@pytest.mark.parametrize(
    "coordinates",
    ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"],
)
@pytest.mark.one_in(3)
def test_coordinates(tmp_path: Path, coordinates: str, constants: Any, mode: str) -> None:
    region = CROP if coordinates == "tf_crop_and_resize" else {}
    attributes: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "mode": mode}
    check_outputs(resize_model(tmp_path, {**constants, **region}, extrapolation_value=3.0, **attributes))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_coordinates_of_opset_11(tmp_path: Path, mode: str) -> None:
    constants = {"roi": np.zeros(0, np.float32), **ROUNDED}
    attributes: dict[str, Any] = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": mode}
    check_outputs(resize_model(tmp_path, constants, opset=11, **attributes))


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_the_nearest_of_rounded_sizes(tmp_path: Path, coordinates: str, rounding: str) -> None:
    attributes: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    check_outputs(resize_model(tmp_path, ROUNDED, **attributes))


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("floor", [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]),
        ("ceil", [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]),
        ("round_prefer_floor", [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]),
        ("round_prefer_ceil", [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_the_nearest_of_quarters(rounding: str, expected: list[float], tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    path = resize_model(tmp_path, {"scales": np.array([1, 4], np.float32)}, (1, 3), **attributes)
    graph = pipeline.read(path, fallback=False)
    assert in_stages(graph, [], {"x": np.array([[0, 1, 2]], np.float32)})["y"].tolist() == [expected]


@pytest.mark.parametrize(
    ("shape", "constants", "attributes"),
    [
        (IMAGE, {"sizes": np.array([7, 9])}, {"axes": [3, 2]}),
        (IMAGE, {"sizes": np.array([9, 7])}, {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
        (IMAGE, {"sizes": np.array([9, 7])}, {"axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"}),
        (IMAGE, {"scales": np.array([2, 1, 1, 1], np.float32)}, {"mode": "nearest"}),
        ((1, 2, 6), {"scales": np.array([1, 1, 1.7], np.float32)}, {}),
        ((1, 2, 3, 4, 6), {"scales": np.array([1, 1, 1.7, 1.2, 0.4], np.float32)}, {}),
        ((5, 6), {"scales": np.array([1.3, 2], np.float32)}, {}),
        ((1, 2, 1, 6), {"sizes": np.array([1, 2, 1, 9])}, {"coordinate_transformation_mode": "align_corners"}),
        (IMAGE, ROUNDED, {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}),
    ],
    ids=["axes", "not larger", "not smaller", "batch", "row", "volume", "matrix", "one row", "without what is outside"],
)
def test_other_attributes(tmp_path: Path, shape: Any, constants: Any, attributes: Any) -> None:
    check_outputs(resize_model(tmp_path, constants, shape, **{"mode": "linear", **attributes}))


@pytest.mark.parametrize("dtype", [TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT16])
def test_dtypes(tmp_path: Path, dtype: int) -> None:
    attributes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    path = resize_model(tmp_path, ROUNDED, dtype=dtype, **attributes)
    graph = pipeline.read(path)
    values = {"x": np.random.default_rng(0).uniform(0, 100, IMAGE).astype(graph.inputs[0].dtype)}
    np.testing.assert_array_equal(in_stages(graph, [], values)["y"], by_onnxruntime(path, values)["y"])


def test_usual_sizes_stay_one_operator(tmp_path: Path) -> None:
    """Opset 11 has empty scales where the sizes are given."""
    unused_inputs = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32)}
    path = resize_model(tmp_path, {**unused_inputs, "sizes": np.array([1, 2, 10, 7])}, opset=11, mode="linear")
    assert kinds(check_outputs(path)) == ["resize2d"]


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.3, 2.6)], ids=["whole", "rounded"])
def test_upsampling_of_old_opsets(tmp_path: Path, scales: tuple[float, ...], mode: str, opset: int) -> None:
    """The scales are an attribute up to opset 8, an input in opset 9."""
    if opset == 7:
        nodes, constants = [node("Upsample", "x", "y", mode=mode, scales=list(map(float, scales)))], {}
    else:
        nodes, constants = [node("Upsample", "x s", "y", mode=mode)], {"s": np.array(scales, np.float32)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": IMAGE}, ["y"], constants, opset=opset))
    assert (kinds(graph) == ["resize2d"]) is (scales[2] == 2)


def test_an_open_batch(tmp_path: Path) -> None:
    path = resize_model(tmp_path, ROUNDED, ("n", 2, 5, 6), mode="linear")
    model = pipeline.read(path, shapes={"x": ["n", 2, 5, 6]})
    assert isinstance(model, OpenModel)
    assert [spec.shape for spec in model.at(n=3).outputs] == [(3, 2, 6, 2)]


@pytest.mark.parametrize(
    ("opset", "inputs", "attributes", "message"),
    [
        (18, "x - s", {"antialias": 1, "mode": "linear"}, r"Resize with antialiasing \(node 'r'\)"),
        (10, "x s", {}, r"Resize as opset 10 has it, convert the model to a newer one \(node 'r'\)"),
    ],
    ids=["antialias", "opset 10"],
)
def test_what_is_refused(tmp_path: Path, opset: int, inputs: str, attributes: Any, message: str) -> None:
    nodes = [node("Resize", inputs, "y", "r", **attributes)]
    path = save(tmp_path / "m.onnx", nodes, {"x": IMAGE}, ["y"], {"s": ROUNDED["scales"]}, opset=opset)
    with pytest.raises(ModelError, match=message):
        pipeline.read(path, fallback=False)
    # ONNX Runtime has them.
    assert kinds(check_outputs(path)) == ["onnxruntime"]
