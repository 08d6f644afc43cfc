"""Integer programs and quantised operators become layers that compute the same, or are refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from boards.vta import simulate
from boards.vta.isa.config import ULTRA96
from boards.vta.lowering import stage
from boards.vta.lowering.artifact import Artifact
from boards.vta.lowering.values import Unsupported
from tests.support.relay_programs import import_program, result

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)
KERNEL = RANDOM.integers(-128, 128, (16, 16, 3, 3)).astype(np.int8)
BIAS = RANDOM.integers(-9999, 9999, 16).astype(np.int32)
CONSTANTS: dict[str, np.ndarray] = {"w": KERNEL, "b": BIAS}

CONV = 'nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32")'
SIGNATURE = "(%x: Tensor[(1, 16, 8, 8), int8], %w: Tensor[(16, 16, 3, 3), int8], %b: Tensor[(16), int32])"
NARROW = 'cast(clip(%y, a_min=-128f, a_max=127f), dtype="int8")'


def run_both(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Run a Relay program on VTA and on TVM."""
    stage_steps = stage.lower_module(_clean_module(text))
    artifact = Artifact.of(stage_steps, ULTRA96)
    memory = artifact.program.memory.copy()
    artifact.inputs[0].write(ULTRA96, IMAGE, memory)
    simulation = simulate(_with(artifact, memory))
    assert simulation.violations == ()
    assert simulation.memory is not None
    return artifact.outputs[0].read(ULTRA96, simulation.memory), result(text, {"x": IMAGE}, CONSTANTS)


def _with(artifact: Artifact, memory: np.ndarray) -> Any:
    from dataclasses import replace

    return replace(artifact.program, memory=memory)


def _clean_module(text: str) -> Any:
    from pipeline.model.passes.normalise import clean

    return clean(import_program(text, CONSTANTS)).module


def program(*lines: str, last: str = NARROW) -> str:
    return f"{SIGNATURE} {{ {'; '.join(lines)}; {last} }}"


REALISED = {
    "bias, rounding, shift": (f"%a = nn.bias_add({CONV}, %b)", "%y = right_shift(add(%a, 256), 9)"),
    "without rounding": (f"%y = right_shift({CONV}, 9)",),
    "a rectifier before rounding": (f"%y = right_shift(add(nn.relu({CONV}), 256), 9)",),
    "a rectifier behind": (f"%y = nn.relu(right_shift(add({CONV}, 1024), 11))",),
    "a shift to the left": (f"%y = right_shift(left_shift({CONV}, 5), 14)",),
    "no shift": (f"%y = {CONV}",),
}


@pytest.mark.parametrize("lines", REALISED.values(), ids=REALISED.keys())
def test_realised_integer_programs(lines: tuple[str, ...]) -> None:
    np.testing.assert_array_equal(*run_both(program(*lines)))


QNN = 'qnn.conv2d(%x, %w, 0, 0, 0.5f, 0.25f, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32")'


@pytest.mark.parametrize("scale", ["64f", "8f", "1024f"])
def test_qnn_programs(scale: str) -> None:
    lines = f'%q = qnn.requantize(nn.bias_add({QNN}, %b), 0.125f, 0, {scale}, 0, axis=1, out_dtype="int8")'
    np.testing.assert_array_equal(*run_both(program(lines, last="clip(%q, a_min=0f, a_max=100f)")))


@pytest.mark.parametrize(("augend_scale", "addend_scale"), [("0.5f", "0.25f"), ("1f", "1f"), ("2f", "0.5f")])
def test_sums_of_two_tensors(augend_scale: str, addend_scale: str) -> None:
    conv = f'%q = qnn.requantize({QNN}, 0.125f, 0, 64f, 0, axis=1, out_dtype="int8")'
    np.testing.assert_array_equal(
        *run_both(program(conv, last=f"qnn.add(%q, %x, {augend_scale}, 0, {addend_scale}, 0, 1f, 0)"))
    )


def test_max_pools() -> None:
    lines = "nn.max_pool2d(%x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])"
    text = f"{SIGNATURE} {{ {lines} }}"
    np.testing.assert_array_equal(*run_both(text))


REFUSED = {
    "a scale": (f'qnn.requantize({QNN}, 0.125f, 0, 63f, 0, axis=1, out_dtype="int8")', "no power of two"),
    "sums": (CONV, "its results are not int8"),
    "what is not clipped": (f'cast({CONV}, dtype="int8")', "what was not clipped"),
    "a product of two tensors": ("multiply(%x, %x)", "multiplies two tensors"),
    "eight bits": ("add(%x, %x)", "computes in eight bits"),
    "too many bits": (
        f'cast(clip(right_shift(left_shift({CONV}, 12), 20), a_min=-128f, a_max=127f), dtype="int8")',
        "may not fit",
    ),
    "means of whole numbers": ("nn.avg_pool2d(%x, pool_size=[2, 2])", "averages whole numbers"),
    "an operator": ("abs(%x)", "VTA has no abs"),
    "a transposed convolution": (
        'nn.conv2d_transpose(%x, %w, channels=16, kernel_size=[3, 3], out_dtype="int32")',
        "VTA has no conv2d_transpose",
    ),
    "a dilated kernel": (CONV.replace("padding", "dilation=[2, 2], padding"), "has holes"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_vta_cannot_run_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        stage.lower_module(_clean_module(f"{SIGNATURE} {{ {text} }}"))


# Quantised as ONNX does it: real numbers with scales.


def scale(exponent: int) -> Any:
    return relax.const(np.float32(2.0**exponent))


def zero(dtype: str) -> Any:
    return relax.const(np.array(128 if dtype == "uint8" else 0, dtype))


def quantise_expression(shape: tuple[int, ...], build: Any, dtype: str = "int8") -> Any:
    """Return a module whose ``main`` is built from a quantised input."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            expression = builder.emit_output(build(builder, x))
        builder.emit_func_output(expression)
    return builder.get()


def reals(builder: Any, x: Any, exponent: int = 0, dtype: str = "int8") -> Any:
    return builder.emit(relax.op.dequantize(x, scale(exponent), zero(dtype), axis=1, out_dtype="float32"))


def round_expression(builder: Any, value: Any, exponent: int = 0, dtype: str = "int8") -> Any:
    return builder.emit(relax.op.quantize(value, scale(exponent), zero(dtype), axis=1, out_dtype=dtype))


def test_flattening_in_front_of_a_dense_layer() -> None:
    weights = RANDOM.integers(-128, 128, (16 * 8 * 8, 10)).astype(np.int8)

    def build(builder: Any, x: Any) -> Any:
        flat = builder.emit(relax.op.reshape(x, (1, 1024)))
        dense = relax.op.matmul(
            reals(builder, flat),
            builder.emit(
                relax.op.dequantize(relax.const(weights), scale(0), zero("int8"), axis=1, out_dtype="float32")
            ),
        )
        return round_expression(builder, builder.emit(dense), 10)

    _check_reals(
        quantise_expression((1, 16, 8, 8), build), np.rint(IMAGE.reshape(1, -1).astype(np.int64) @ weights / 1024)
    )


@pytest.mark.parametrize("exponent", [-1, 0, 1, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_copies_in_other_scales(exponent: int, dtype: str) -> None:
    """Rounded to the even neighbour, and clipped; unsigned bytes are signed ones plus 128."""

    def build(builder: Any, x: Any) -> Any:
        relu = builder.emit(relax.op.nn.relu(reals(builder, x, dtype=dtype)))
        return round_expression(builder, relu, exponent, dtype)

    reference_values = np.rint(np.maximum(IMAGE, 0) / 2.0**exponent)
    _check_reals(quantise_expression((1, 16, 8, 8), build, dtype), reference_values, dtype)


@pytest.mark.parametrize("exponents", [(0, 0, 1), (2, 0, 3), (0, 3, 0), (1, 1, 0)])
def test_additions(exponents: tuple[int, int, int]) -> None:
    left_scale, right_scale, result_ = exponents

    def build(builder: Any, x: Any) -> Any:
        pool = builder.emit(relax.op.nn.max_pool2d(x, (1, 1)))
        total = builder.emit(relax.op.add(reals(builder, x, left_scale), reals(builder, pool, right_scale)))
        return round_expression(builder, total, result_)

    reference_values = np.rint(IMAGE * (2.0**left_scale + 2.0**right_scale) / 2.0**result_)
    _check_reals(quantise_expression((1, 16, 8, 8), build), reference_values)


def test_a_rectifier_whose_input_others_read_has_a_layer_of_its_own() -> None:
    def build(builder: Any, x: Any) -> Any:
        half = round_expression(builder, reals(builder, x), 1)
        relu = round_expression(builder, builder.emit(relax.op.nn.relu(reals(builder, half))))
        return round_expression(builder, builder.emit(relax.op.add(reals(builder, half), reals(builder, relu))), 0)

    half = np.rint(IMAGE / 2)
    _check_reals(quantise_expression((1, 16, 8, 8), build), half + np.maximum(half, 0))


@pytest.mark.parametrize("alias", ["numbers", "shape"])
def test_a_rectifier_whose_input_others_read_under_another_name_changes_nothing_for_them(alias: str) -> None:
    """The bytes were read once only, as the numbers that two operators shared, and the rectifier clipped both."""

    def build(builder: Any, x: Any) -> Any:
        half = round_expression(builder, reals(builder, x), 1)
        if alias == "shape":
            half = builder.emit(relax.op.reshape(half, (1, 1024)))
            numbers, options = reals(builder, half), reals(builder, half)
        else:
            numbers = options = reals(builder, half)
        relu = round_expression(builder, builder.emit(relax.op.nn.relu(numbers)))
        return round_expression(builder, builder.emit(relax.op.add(options, reals(builder, relu))), 0)

    half = np.rint(IMAGE / 2)
    reference_values = half + np.maximum(half, 0)
    _check_reals(
        quantise_expression((1, 16, 8, 8), build),
        reference_values.reshape(1, -1) if alias == "shape" else reference_values,
    )


@pytest.mark.parametrize("kernel", [(8, 8), (2, 2), (1, 4)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_means_over_powers_of_two(kernel: tuple[int, int], dtype: str) -> None:
    def build(builder: Any, x: Any) -> Any:
        data = reals(builder, x, dtype=dtype)
        pool = relax.op.mean(data, (2, 3), True) if kernel == (8, 8) else relax.op.nn.avg_pool2d(data, kernel, kernel)
        return round_expression(builder, builder.emit(pool), 0, dtype)

    height, width = kernel
    windows = IMAGE.astype(float).reshape(1, 16, 8 // height, height, 8 // width, width)
    _check_reals(quantise_expression((1, 16, 8, 8), build, dtype), np.rint(windows.mean((3, 5))), dtype)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: relax.op.nn.avg_pool2d(x, (3, 3), (1, 1)), "divides by 9, which is no power of two"),
        (lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (1, 1), (1, 1, 0, 0)), "averages over fewer values"),
        (lambda x: relax.op.mean(x, (1, 2)), "other axes than rows and columns"),
    ],
)
def test_other_means_are_refused_with_a_reason(build: Any, message: str) -> None:
    module = quantise_expression(
        (1, 16, 8, 8), lambda builder, x: round_expression(builder, builder.emit(build(reals(builder, x))))
    )
    with pytest.raises(Unsupported, match=message):
        stage.lower_module(relax.transform.Normalize()(module))


def test_depthwise_convolutions() -> None:
    kernel = RANDOM.integers(-128, 128, (16, 1, 3, 3)).astype(np.int8)

    def build(builder: Any, x: Any) -> Any:
        weights = relax.op.dequantize(relax.const(kernel), scale(0), zero("int8"), axis=0, out_dtype="float32")
        data = reals(builder, x)
        sums = relax.op.nn.conv2d(data, builder.emit(weights), padding=(1, 1), groups=16)
        return round_expression(builder, builder.emit(sums), 7)

    image = np.pad(IMAGE.astype(int), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    sums = (windows * kernel[:, 0, None, None].astype(int)).sum((4, 5))
    _check_reals(quantise_expression((1, 16, 8, 8), build), np.rint(sums / 128))


@pytest.mark.parametrize("exponents", [(0, 0, 0), (1, 0, 1), (-1, 2, 0)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_concatenations(exponents: tuple[int, int, int], dtype: str) -> None:
    """Also of a tensor that is read twice: what clips one of its copies leaves the other one alone."""
    left_scale, right_scale, result_ = exponents

    def build(builder: Any, x: Any) -> Any:
        pool = builder.emit(relax.op.nn.max_pool2d(x, (1, 1)))
        relu = builder.emit(relax.op.nn.relu(reals(builder, pool, right_scale, dtype)))
        positive = round_expression(builder, relu, right_scale, dtype)
        tensors = [reals(builder, x, left_scale, dtype), reals(builder, positive, right_scale, dtype)]
        concatenation = builder.emit(relax.op.concat([*tensors, reals(builder, pool, right_scale, dtype)], 1))
        return round_expression(builder, concatenation, result_, dtype)

    parts = [IMAGE * 2.0**left_scale, np.maximum(IMAGE, 0) * 2.0**right_scale, IMAGE * 2.0**right_scale]
    reference_values = np.rint(np.concatenate(parts, 1) / 2.0**result_)
    _check_reals(quantise_expression((1, 16, 8, 8), build, dtype), reference_values, dtype)


def test_concatenations_of_bytes() -> None:
    def build(builder: Any, x: Any) -> Any:
        pool = builder.emit(relax.op.nn.max_pool2d(x, (2, 2), (1, 1), (1, 1, 0, 0)))
        return builder.emit(relax.op.concat([x, pool, x], 1))

    image = np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (1, 0)), constant_values=-128)
    pool = np.lib.stride_tricks.sliding_window_view(image, (2, 2), (2, 3)).max((4, 5))
    _check_reals(quantise_expression((1, 16, 8, 8), build), np.concatenate([IMAGE, pool, IMAGE], 1))


def _check_reals(module: Any, reference_values: np.ndarray, dtype: str = "int8") -> None:
    artifact = Artifact.of(stage.lower_module(relax.transform.Normalize()(module)), ULTRA96)
    memory = artifact.program.memory.copy()
    inputs = (IMAGE.view(np.uint8) ^ 128) if dtype == "uint8" else IMAGE
    artifact.inputs[0].write(ULTRA96, inputs, memory)
    simulation = simulate(_with(artifact, memory))
    assert simulation.violations == ()
    assert simulation.memory is not None
    outputs = artifact.outputs[0].read(ULTRA96, simulation.memory)
    assert outputs.dtype == dtype
    shift = 128 if dtype == "uint8" else 0
    np.testing.assert_array_equal(outputs.astype(int) - shift, np.clip(reference_values, -128, 127))
