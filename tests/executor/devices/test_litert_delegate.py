"""LiteRT's delegates, by one that takes convolutions only, and computes them as LiteRT's reference kernels do."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")

from pipeline.core.board.board import Device  # noqa: E402
from pipeline.core.plan.plan import StagePlan, TensorSpec  # noqa: E402
from pipeline.errors import BuildError  # noqa: E402
from pipeline.executor import devices  # noqa: E402
from pipeline.executor.devices.litert import LiteRtRuntime  # noqa: E402
from tests.frontends.tflite.test_tflite import RELU, RELU6, SAME, VALID, Writer, classifier  # noqa: E402
from tests.support.fake_npu import build_delegate, npu  # noqa: E402

INPUT = (2, 9, 11, 4)
WINDOW = (3, 2)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return npu(build_delegate(tmp_path_factory.mktemp("npu")))


class TfliteSource:
    """A stage that is a TFLite model from the beginning."""

    def __init__(self, model: bytes) -> None:
        self._model = model

    def module(self) -> Any:
        raise BuildError("there is no module")

    def onnx(self) -> Any:
        raise BuildError("there is no ONNX model")

    def compiled(self) -> bytes:
        return b""

    def tflite(self) -> bytes:
        return self._model


def convolution(  # noqa: PLR0917 - its own parameters
    path: Path, kind: str, dtype: str, stride: int, dilation: int, padding: int, activation: int
) -> bytes:
    """Return a model of one convolution, quantised by channel if it is of integers."""
    generator, writer = np.random.default_rng(0), Writer(*INPUT)
    deep = kind == "DEPTHWISE_CONV_2D"
    channels = 8 if deep else 5
    shape = (1, *WINDOW, channels) if deep else (channels, *WINDOW, INPUT[3])
    reach = [(size - 1) * dilation if padding == VALID else 0 for size in WINDOW]
    extents = [-(-(size - lost) // stride) for size, lost in zip(INPUT[1:3], reach, strict=True)]
    output = (INPUT[0], *extents, channels)
    if dtype == "int8":
        writer.graph.inputs = [writer.tensor("i", INPUT, "int8", 0.05, 3)]
        kernel = writer.constant("w", generator.integers(-127, 128, shape).astype(np.int8), 0.1)
        quantization = writer.graph.tensors[kernel].quantization
        quantization.scale = generator.uniform(0.001, 0.01, channels).astype(np.float32)
        quantization.zeroPoint = [0] * channels
        quantization.quantizedDimension = 3 if deep else 0
        bias = writer.constant("b", generator.integers(-2000, 2000, channels).astype(np.int32), 1e-4)
        result = writer.tensor("y", output, "int8", 0.04, -5)
    else:
        kernel = writer.constant("w", generator.standard_normal(shape).astype(np.float32))
        bias = writer.constant("b", generator.standard_normal(channels).astype(np.float32))
        result = writer.tensor("y", output)
    options = {"options": "DepthwiseConv2DOptions", "depthMultiplier": 2} if deep else {"options": "Conv2DOptions"}
    writer.add(
        kind, [writer.graph.inputs[0], kernel, bias], result, padding=padding, strideW=stride, strideH=stride,
        dilationWFactor=dilation, dilationHFactor=dilation, fusedActivationFunction=activation, **options,
    )  # fmt: skip
    for code in writer.model.operatorCodes:
        code.version = 3
    return writer.save(path, result).read_bytes()


def run(model: bytes, frame: np.ndarray, delegates: list[Any]) -> tuple[np.ndarray, int]:
    """Return a model's output, and how many kernels of delegates it has, beside the reference kernels."""
    interpreter = interpreters.Interpreter(
        model_content=model,
        experimental_delegates=delegates,
        experimental_op_resolver_type=interpreters.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], frame)
    interpreter.invoke()
    kernels = [each["op_name"] for each in interpreter._get_ops_details()]
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), kernels.count("DELEGATE")


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("options", [(1, 1, SAME, 0), (2, 1, SAME, RELU), (1, 2, VALID, RELU6)])
def test_it_computes_what_the_reference_kernels_do(
    kind: str, dtype: str, options: tuple[int, int, int, int], device: Device, tmp_path: Path
) -> None:
    model = convolution(tmp_path / "m.tflite", kind, dtype, *options)
    frame = np.random.default_rng(1).standard_normal(INPUT).astype(np.float32)
    if dtype == "int8":
        frame = np.random.default_rng(1).integers(-128, 128, INPUT).astype(np.int8)
    assert device.target
    delegate = interpreters.load_delegate(device.target["delegate"])
    (expected, none), (result, one) = run(model, frame, []), run(model, frame, [delegate])
    assert (none, one) == (0, 1)
    if dtype == "int8":
        np.testing.assert_array_equal(result, expected)
    else:
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_what_falls_back_is_an_error_that_names_tensors(device: Device, tmp_path: Path) -> None:
    source = TfliteSource(classifier(tmp_path / "net.tflite").read_bytes())
    with pytest.raises(BuildError, match="elsewhere than on 'npu'") as error:
        LiteRtRuntime.compile_stage(source, device)
    names = ["skip of kind ADD", "swish of kind HARD_SWISH", "pool of kind MAX_POOL_2D", "mean of kind MEAN"]
    assert all(name in str(error.value) for name in names)
    assert "CONV_2D" not in str(error.value)
    tolerant = replace(device, target={**(device.target or {}), "allow_fallback": True})
    assert LiteRtRuntime.compile_stage(source, tolerant).module() == source.tflite()


def test_a_delegate_is_opened_once_for_all_questions_and_interpreters(device: Device, tmp_path: Path) -> None:
    assert device.target
    # Another file, which no other test has loaded.
    library = tmp_path / "libnpu.so"
    library.write_bytes(Path(str(device.target["delegate"])).read_bytes())
    device, model = npu(library), convolution(tmp_path / "m.tflite", "CONV_2D", "float32", 1, 1, SAME, 0)
    stage = StagePlan("stage", "npu", (TensorSpec("i", INPUT),), (TensorSpec("y", (*INPUT[:3], 5)),))
    for _ in range(2):
        assert not devices.why_absent(device)
        code = LiteRtRuntime.compile_stage(TfliteSource(model), device)
        runtime = LiteRtRuntime(device)
        runtime.run(runtime.load(stage, code), [np.ones(INPUT, np.float32)])
        runtime.close()
    assert ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "fake_npu_count").value == 1


def test_only_a_device_with_a_delegate_has_to_be_asked(device: Device, tmp_path: Path) -> None:
    assert LiteRtRuntime.is_selective(device)
    assert not LiteRtRuntime.is_selective(Device("cpu", "litert"))
    assert not LiteRtRuntime.is_selective(replace(device, target={**(device.target or {}), "allow_fallback": True}))
    assert not LiteRtRuntime.is_selective(npu(tmp_path / "none.so"))


def test_options_reach_the_delegate(device: Device) -> None:
    wrong = replace(device, target={**(device.target or {}), "options": {"MATMUL": 1}})
    assert "options are the kinds CONV_2D and DEPTHWISE_CONV_2D, not MATMUL" in devices.why_absent(wrong)


def test_a_delegate_of_the_same_name_is_told_apart_by_its_content(device: Device, tmp_path: Path) -> None:
    assert device.target
    file = tmp_path / "libnpu.so"
    file.write_bytes(Path(str(device.target["delegate"])).read_bytes())
    copy = replace(device, target={"kind": "litert", "delegate": str(file)})
    assert LiteRtRuntime.fingerprint(copy) == LiteRtRuntime.fingerprint(device)
    file.write_bytes(b"another")
    assert LiteRtRuntime.fingerprint(copy) != LiteRtRuntime.fingerprint(device)
