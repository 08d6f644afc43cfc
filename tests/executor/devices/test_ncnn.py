"""ncnn: tensors without a batch, operators that pnnx leaves, and layers that Vulkan leaves to the CPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError, BuildError, BundleError
from pipeline.executor import devices, targets
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.refusals import find_refusals
from tests.support.model_stages import RELU, SHAPE, STAGE, OnnxSource, check_streaming, compile_source, run
from tests.support.onnx_models import by_onnxruntime, node, save, weights

pytest.importorskip("ncnn", reason="ncnn is not installed")
pytest.importorskip("pnnx", reason="pnnx is not installed")

CPU = Device("cpu", "ncnn", cores=(0,))
GPU = Device("gpu", "ncnn", target={"device": "GPU"})
WEIGHTS = weights(4, 4, 3, 3) / 6
CONVOLUTION = OnnxSource(node("Conv", "x w", "y", pads=[1] * 4), w=WEIGHTS)
# Vulkan has no such layer.
SAMPLED = OnnxSource(
    node("Conv", "x w", "a", pads=[1] * 4),
    node("GridSample", "a grid", "y", "warp"),
    w=WEIGHTS,
    grid=np.zeros((1, 6, 6, 2), np.float32),
)


@pytest.fixture(params=["CPU", "GPU"])
def device(request: pytest.FixtureRequest) -> Device:
    return CPU if request.param == "CPU" else vulkan()


def vulkan() -> Device:
    if reason := devices.why_absent(GPU):
        pytest.skip(f"{reason}; install mesa-vulkan-drivers")
    return GPU


@pytest.mark.parametrize("shape", [(1, 3, 7, 5), (2, 3, 7, 5)])
def test_channels_of_odd_sizes_and_batches_are_computed(device: Device, shape: tuple[int, ...], tmp_path: Path) -> None:
    nodes = (
        node("Conv", "x w", "a", pads=[1] * 4),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "y", kernel_shape=[3, 3]),
    )
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": shape}, ["y", "a"], {"w": weights(5, 3, 3, 3)}))
    board = Board("b", (device,))
    pipeline.build(graph, pipeline.plan(graph, board, devices=[device.name])).save(tmp_path / "m.bundle")
    frames = [{"x": weights(*shape, seed=seed)} for seed in range(3)]
    with pipeline.load(tmp_path / "m.bundle") as running:
        results = [future.outputs() for future in map(running.submit, frames)]
    for frame, result in zip(frames, results, strict=True):
        for name, expected in by_onnxruntime(tmp_path / "m.onnx", frame).items():
            np.testing.assert_allclose(result[name], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("order", [("tvm", "ncnn"), ("ncnn", "tvm")])
def test_its_stages_stream_beside_those_of_tvm(device: Device, order: tuple[str, str], tmp_path: Path) -> None:
    board = Board("b", (Device("tvm", "cpu", cores=(0,)), replace(device, name="ncnn", cores=(1,) * (device is CPU))))
    check_streaming(board, order, tmp_path)


def test_the_callers_array_is_not_computed_in(device: Device) -> None:
    frame = weights(*SHAPE)
    before = frame.copy()
    np.testing.assert_array_equal(run(device, compile_source(RELU, device), [frame])[0], np.maximum(before, 0))
    np.testing.assert_array_equal(frame, before)


def test_float16_is_used_only_where_the_stage_asks_for_it() -> None:
    device, frame = vulkan(), weights(*SHAPE)
    code = compile_source(CONVOLUTION, device)
    exact, narrow = (
        run(device, code, [frame], stage=replace(STAGE, options=replace(STAGE.options, precision=precision)))[0]
        for precision in (None, "float16")
    )
    assert np.abs(exact - run(CPU, code, [frame])[0]).max() < 1e-5
    assert 1e-5 < np.abs(exact - narrow).max() < 1e-1


def test_an_operator_without_a_layer_is_refused_by_name() -> None:
    source = OnnxSource(node("Hardmax", "x", "y", "choice"))
    for device in (CPU, replace(CPU, target={"allow_fallback": True})):
        with pytest.raises(BuildError, match=r"ncnn has no layer for choice of kind Hardmax; choose another"):
            compile_source(source, device)


def test_a_layer_that_vulkan_leaves_to_the_cpu_is_an_error_that_names_it() -> None:
    device = vulkan()
    with pytest.raises(BuildError, match=r"elsewhere than on 'gpu': warp of kind GridSample \(the CPU\)"):
        compile_source(SAMPLED, device)
    # Built where there was no such device to ask.
    with pytest.raises(BundleError, match=r"elsewhere than on 'gpu': gridsample_0 of kind GridSample \(the CPU\)"):
        run(device, compile_source(SAMPLED, CPU), [weights(*SHAPE)])
    tolerant = replace(device, target={**(device.target or {}), "allow_fallback": True})
    frame = weights(*SHAPE)
    expected = run(CPU, compile_source(SAMPLED, CPU), [frame])[0]
    np.testing.assert_allclose(run(tolerant, compile_source(SAMPLED, tolerant), [frame])[0], expected, atol=1e-4)


def test_plans_ask_it_once_and_put_nothing_there_that_it_leaves(tmp_path: Path) -> None:
    nodes = (node("Conv", "x w", "a", pads=[1] * 4), node("Hardmax", "a", "h", "choice"), node("Relu", "h", "y"))
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": SHAPE}, ["y"], {"w": WEIGHTS}))
    board = Board("b", (replace(CPU, target={"kind": "ncnn"}),))
    file = tmp_path / "cache"
    (refusals,) = find_refusals(graph, board, cache=CostCache(file)).values()
    assert any("choice of kind Hardmax (ncnn has no such layer)" in reason for reason in refusals.values())
    # From the cache: nobody is asked.
    assert find_refusals(graph, board, cache=CostCache(file)) == {"cpu": refusals}


SEEDED = """#!{python}
import pathlib, sys
stem = sys.argv[1].removesuffix(".onnx")
# Takes a Relu, and leaves it to the CPU: by a layer that Vulkan has not.
layers = "7767517\\n2 2\\nInput in0 0 1 in0\\n{layer} relu_0 1 1 in0 out0{values}\\n"
pathlib.Path(stem + ".ncnn.param").write_text(layers)
pathlib.Path(stem + ".ncnn.bin").touch()
pathlib.Path(stem + "_ncnn.py").write_text("in0.numpy(), batch_index=0) out0.numpy(batch_index=0)")
"""


@pytest.mark.parametrize(("layer", "values"), [("Threshold", " 0=0.0"), ("Abacus", "")])
def test_a_compiler_that_hands_an_operator_to_the_cpu_is_found_out(
    layer: str, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = vulkan()
    package = tmp_path / "pnnx"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pnnx").write_text(SEEDED.format(python=sys.executable, layer=layer, values=values))
    (package / "pnnx").chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pnnx", raising=False)
    with pytest.raises(BuildError, match="relu of kind Relu"):
        compile_source(RELU, device)


def test_tensors_that_are_not_float32_are_refused() -> None:
    class Integers(OnnxSource):
        def onnx(self) -> Any:
            model = super().onnx()
            model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT64, SHAPE))
            return model

    with pytest.raises(BuildError, match="its tensor 'x' is not float32, and ncnn takes no other"):
        compile_source(Integers(node("Abs", "x", "y")), CPU)


@pytest.mark.parametrize("name", ["gpu", "GPU.x", "NPU", 3])
def test_devices_that_are_none_are_refused(name: object) -> None:
    with pytest.raises(BoardError, match=f"device is {name!r}; it must be 'CPU', 'GPU', or 'GPU.1'"):
        targets.check(Board("b", (replace(GPU, target={"device": name}),)), "b.toml")


def test_missing_devices_and_options_are_named() -> None:
    assert "ncnn finds no device 'GPU.7' here; Vulkan has" in devices.why_absent(
        replace(GPU, target={"device": "GPU.7"})
    )
    device = replace(CPU, target={"options": {"use_magic": True}})
    with pytest.raises(BundleError, match="ncnn has no option 'use_magic'"):
        run(device, compile_source(RELU, device), [weights(*SHAPE)])
