"""Scales keep to what VTA's shifts and sums allow: dead channels and unequal addends cost it no layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from boards.vta.compiler.layers import LIMITS
from pipeline.cli import main
from pipeline.core.board.board import Device
from pipeline.core.scale_limits import ScaleLimits
from pipeline.quantization import loss
from pipeline.quantization.onnx_model import load
from pipeline.quantization.quantize import Frames, limits_of, quantize
from pipeline.quantization.rounding import round_scales
from pipeline.split.offload import verdicts
from pipeline.split.planning.problem.group_work import groups
from tests.support.onnx_models import node, save, weights
from tests.support.relay_programs import HEADER, random

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

BOARD = "ultra96-simulated"
VTA = boards.get(BOARD).device("vta-simulated")
IMAGE = (1, 8, 8, 8)
POOL = node("MaxPool", "r", "y", "pool", kernel_shape=[2, 2])
FRAMES = [{"x": weights(*IMAGE, seed=seed)} for seed in range(4)]


def reasons(path: Path, device: Device = VTA) -> list[str]:
    """Return why VTA does not run groups that have an operator on numbers."""
    graph = pipeline.read(path)
    fused = groups(graph)
    group_verdicts = zip(fused, verdicts(graph, fused, device), strict=True)
    return [each.reason for group, each in group_verdicts if {"conv2d", "add"} & {operator.kind for operator in group}]


def convolution(folder: Path, *factors: float) -> Path:
    """Write a convolution whose first channels' weights are multiplied with factors."""
    kernel, bias = weights(8, 8, 3, 3) / 8, weights(8)
    for channel, factor in enumerate(factors):
        kernel[channel] *= np.float32(factor)
    nodes = [node("Conv", "x w b", "c", "conv", pads=[1] * 4), node("Relu", "c", "r", "relu"), POOL]
    return save(folder / "conv.onnx", nodes, {"x": IMAGE}, ["y"], {"w": kernel, "b": bias})


@pytest.mark.parametrize("factors", [(1e-5,), (1e-9, 1e-12), (0.0, 1e-30), (1e-9,) * 8], ids=str)
def test_dead_channels_do_not_cost_vta_the_layer(factors: tuple[float, ...], tmp_path: Path) -> None:
    model, output = convolution(tmp_path, *factors), tmp_path / "int8.onnx"
    quantize(model, FRAMES, output, board=BOARD)
    assert reasons(output) == [""]
    dead_loss = loss.measure_loss(model, output, FRAMES)
    quantize(convolution(tmp_path), FRAMES, output, board=BOARD)
    live_loss = loss.measure_loss(tmp_path / "conv.onnx", output, FRAMES)
    assert dead_loss.signal_to_noise_db > live_loss.signal_to_noise_db - 3


def test_a_large_bias_of_a_dead_channel_keeps_its_value(tmp_path: Path) -> None:
    kernel, bias = weights(8, 8, 1, 1), np.zeros(8, np.float32)
    kernel[0], bias[0] = 1e-12, 3
    nodes = [node("Conv", "x w b", "y", "conv")]
    model = save(tmp_path / "conv.onnx", nodes, {"x": IMAGE}, ["y"], {"w": kernel, "b": bias})
    quantize(model, FRAMES, tmp_path / "int8.onnx", board=BOARD)
    for values in loss.outputs(tmp_path / "int8.onnx", FRAMES, fused=False):
        np.testing.assert_allclose(values[:, 0], 3, atol=0.1)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_addends_of_unequal_size_do_not_cost_vta_their_sum(factor: float, tmp_path: Path) -> None:
    kernels = {"a": weights(8, 8, 1, 1), "b": weights(8, 8, 1, 1, seed=1) * np.float32(factor)}
    nodes = [node("Conv", "x a", "c"), node("Conv", "x b", "d"), node("Add", "c d", "r", "sum"), POOL]
    model = save(tmp_path / "sum.onnx", nodes, {"x": IMAGE}, ["y"], kernels)
    quantize(model, FRAMES, tmp_path / "int8.onnx", board=BOARD)
    assert set(reasons(tmp_path / "int8.onnx")) == {""}
    assert loss.measure_loss(model, tmp_path / "int8.onnx", FRAMES).signal_to_noise_db > 30


def test_dead_channels_of_relay_programs_do_not_cost_vta_the_layer(tmp_path: Path) -> None:
    kernel = random(16, 16, 3, 3, dtype="int8") // 2
    scales = np.where(np.arange(16) == 3, 1e-12, 0.007).astype(np.float32)
    sums = (0.03 * scales).astype(np.float32)
    program = tmp_path / "net.relay"
    program.write_text(
        f"""{HEADER}def @main(%x: Tensor[(1, 16, 8, 8), float32], %w: Tensor[(16, 16, 3, 3), int8],
        %b: Tensor[(16), int32], %s: Tensor[(16), float32], %t: Tensor[(16), float32]) {{
      %0 = qnn.quantize(%x, 0.03f, 0, out_dtype="int8");
      %1 = qnn.conv2d(%0, %w, 0, 0, 0.03f, %s, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3],
        out_dtype="int32");
      %2 = qnn.requantize(nn.bias_add(%1, %b), %t, 0, 0.05f, 0, axis=1, out_dtype="int8");
      max(qnn.dequantize(%2, 0.05f, 0), axis=[2, 3])
    }}
    """
    )
    params = {"w": kernel, "b": random(16, dtype="int32") * 10, "s": scales, "t": sums}
    round_scales(program, tmp_path / "net.relax", params=params, limits=limits_of(BOARD))
    assert reasons(tmp_path / "net.relax") == [""]


def test_a_board_decides_which_scales_a_model_gets(
    digits_onnx: Path, training: Frames, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", np.stack([each["image"] for each in training[:4]]))
    reports = {}
    for board in (BOARD, "raspberry-pi-4"):
        output = tmp_path / f"{board}.onnx"
        command = ["quantize", str(digits_onnx), "--calibrate", str(tmp_path / "images.npy"), "-o", str(output)]
        assert main([*command, "--board", board]) == 0
        arrays = {each.name: onnx.numpy_helper.to_array(each) for each in load(output).graph.initializer}
        scales = [value for name, value in arrays.items() if name.endswith("_scale")]
        reports[board] = all((np.frexp(each)[0] == 0.5).all() for each in scales), capsys.readouterr().out
    assert (reports[BOARD][0], reports["raspberry-pi-4"][0]) == (True, False)
    assert "powers of two" in reports[BOARD][1]
    assert "as calibrated" in reports["raspberry-pi-4"][1]


def test_an_unknown_board_is_refused(digits_onnx: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "images.npy", np.zeros((2, 1, 1, 32, 32), np.float32))
    command = [
        "quantize",
        str(digits_onnx),
        "--calibrate",
        str(tmp_path / "images.npy"),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    assert main([*command, "--board", "ultra69"]) == 2
    assert "unknown board 'ultra69'" in capsys.readouterr().err
    assert not (tmp_path / "q.onnx").exists()


def test_limits_are_those_of_the_boards_accelerators() -> None:
    assert limits_of("raspberry-pi-4") is None
    assert limits_of(None) is None
    assert limits_of(boards.get(BOARD)) == LIMITS
    assert limits_of("raspberry-pi-4", power_of_two=True) == ScaleLimits() == LIMITS


def test_exponents_are_raised_only_where_shifts_or_sums_do_not_fit() -> None:
    natural = np.array([-9.0, -18.0, -np.inf])
    np.testing.assert_array_equal(LIMITS.weight_exponents(natural, -5, -2, None, 100), [-9, -12, -12])
    np.testing.assert_array_equal(LIMITS.weight_exponents(natural, -5, None, None, 100), [-9, -18, 0])
    bias = np.array([0.0, 2.0**15, 1.0])
    np.testing.assert_array_equal(LIMITS.weight_exponents(natural, -5, None, bias, 100), [-9, -9, -24])
    np.testing.assert_array_equal(LIMITS.weight_exponents(natural[:1], -5, None, None, 1 << 17), [-8])
