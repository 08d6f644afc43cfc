"""Models are quantised by ONNX Runtime, and with powers of two so that VTA can run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from pipeline.errors import InputError, ModelError
from pipeline.executor import host_target, kernels
from pipeline.executor.kernels import microarchitecture
from pipeline.quantization import floats
from pipeline.quantization.loss import measure_loss, outputs
from pipeline.quantization.onnx_model import load
from pipeline.quantization.powers import even, next_power, odd
from pipeline.quantization.quantize import Frames, quantize

OWN = microarchitecture.of_target(kernels.target_for(host_target.host_target()))
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def constants(path: Path) -> dict[str, np.ndarray]:
    return {each.name: onnx.numpy_helper.to_array(each) for each in load(path).graph.initializer}


def command(model: Path, folder: Path) -> list[str]:
    """Return the command for a model and the images in a folder."""
    return ["quantize", str(model), "--calibrate", str(folder / "images.npy"), "-o", str(folder / "made.onnx")]


def test_all_scales_are_powers_of_two_and_all_zero_points_0(quantized_model: Path) -> None:
    arrays = constants(quantized_model)
    scales = [arrays[name] for node in _pairs(quantized_model) for name in node.input[1:2]]
    assert len(scales) > 40
    assert all((np.frexp(each)[0] == 0.5).all() for each in scales)
    assert not any(arrays[name].any() for node in _pairs(quantized_model) for name in node.input[2:])


def test_all_sums_of_products_are_odd(quantized_model: Path) -> None:
    arrays = constants(quantized_model)
    weights = [each for name, each in arrays.items() if each.dtype == np.int8 and each.ndim > 1]
    biases = [each for each in arrays.values() if each.dtype == np.int32 and each.any()]
    assert len(weights) == len(biases) == 11
    assert all((each % 2 == 0).all() for each in weights)
    assert all((each % 2 == 1).all() for each in biases)


def test_the_network_remains_accurate(
    digits_onnx: Path, quantized_model: Path, held_out: tuple[Frames, np.ndarray]
) -> None:
    quantization_loss = measure_loss(digits_onnx, quantized_model, *held_out)
    assert quantization_loss.frames == 450
    assert quantization_loss.accuracy_before is not None
    assert quantization_loss.accuracy_after is not None
    assert abs(quantization_loss.accuracy_after - quantization_loss.accuracy_before) <= 0.01
    assert quantization_loss.signal_to_noise_db > 15


@pytest.mark.skipif(
    OWN.dots not in {"amx", "vnni"}, reason="ONNX Runtime's fused sums overflow 16 bits on a processor without VNNI"
)
def test_operators_fused_or_not_give_the_same(quantized_model: Path, training: Frames) -> None:
    for fused_output, plain_output in zip(
        outputs(quantized_model, training), outputs(quantized_model, training, fused=False), strict=True
    ):
        np.testing.assert_array_equal(fused_output, plain_output)


def test_a_quantised_model_becomes_one_with_powers_of_two(digits_onnx: Path, training: Frames, tmp_path: Path) -> None:
    usual, restricted = tmp_path / "usual.onnx", tmp_path / "restricted.onnx"
    quantize(digits_onnx, training, usual)
    with pytest.raises(ModelError, match="quantised already; --power-of-two"):
        quantize(usual, training, restricted)
    quantize(usual, training, restricted, power_of_two=True)
    assert measure_loss(usual, restricted, training).agreement == 1
    restored = floats.remove_quantization(load(usual))
    assert not floats.is_quantized(restored)
    onnx.checker.check_model(restored, full_check=True)


def test_the_command_reports_the_loss(
    digits_onnx: Path, training: Frames, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", np.stack([each["image"] for each in training]))
    np.save(tmp_path / "labels.npy", np.zeros(len(training), np.int64))
    arguments = [*command(digits_onnx, tmp_path), "--power-of-two"]
    assert main([*arguments, "--labels", str(tmp_path / "labels.npy"), "--frames", "12", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["frames"], report["agreement"]) == (12, 1.0)
    assert report["accuracy_before"] == report["accuracy_after"]
    assert (tmp_path / "made.onnx").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--frames", "none"], "--frames"),
        (["--labels", "absent.npy"], "cannot read the labels"),
        (["-o", "absent/made.onnx"], "there is no folder"),
    ],
)
def test_wrong_use_is_told(
    changes: list[str], message: str, digits_onnx: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", np.zeros((2, 1, 1, 32, 32), np.float32))
    arguments = command(digits_onnx, tmp_path)
    assert main([*arguments, *changes]) == 2
    assert message in capsys.readouterr().err


def test_frames_of_another_shape_are_refused(
    digits_onnx: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", np.zeros((2, 1, 1, 8, 8), np.float32))
    arguments = command(digits_onnx, tmp_path)
    assert main(arguments) == 2
    assert "float32[1, 1, 8, 8] for image" in capsys.readouterr().err


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(ModelError, match="is not an ONNX model"):
        quantize(path, [{}], tmp_path / "made.onnx")


def test_without_frames_nothing_is_calibrated(digits_onnx: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frames"):
        quantize(digits_onnx, [], tmp_path / "made.onnx")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_frames_without_finite_values_are_named(digits_onnx: Path, tmp_path: Path, value: float) -> None:
    frames = [{"image": np.zeros((1, 1, 32, 32), np.float32)}, {"image": np.full((1, 1, 32, 32), value, np.float32)}]
    with pytest.raises(InputError, match=r"frame 1 to calibrate with .* in 'image'"):
        quantize(digits_onnx, frames, tmp_path / "made.onnx")


def test_numbers_become_powers_even_and_odd() -> None:
    scales = np.array([0.3, 0.5, 0.51], np.float32)
    np.testing.assert_array_equal(next_power(scales), [0.5, 0.5, 1.0])
    weights = np.array([[0.4, -0.9], [100.0, 1.3]])
    np.testing.assert_array_equal(even(weights, np.array([0.25, 0.5]), 0), [[2, -4], [126, 2]])
    np.testing.assert_array_equal(odd(np.array([0.0, 1.9, -0.1]), np.array(1.0)), [1, 1, -1])


def _pairs(path: Path) -> list[Any]:
    return [node for node in load(path).graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
