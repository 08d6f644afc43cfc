"""Operators whose images have their channels last in the model, over random shapes, against ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipeline.core.numerics import Numerics
from tests.support.onnx_models import by_onnxruntime, node, save, weights
from tests.support.random_networks import eager_microarchitecture, image, odd, window
from tests.support.random_seeds import seeds
from tests.support.relax_models import constant, kernels, module, run

ORDERS = ("HWIO", "OHWI", "HWOI", "OIHW")
TO_LAST = (0, 2, 3, 1)

Case = tuple[Callable[..., Any], dict[str, np.ndarray], list[Any], dict[str, np.ndarray], str]
"""What makes the operator in Relax, its input, the same in ONNX with its constants, and the rule."""


def _relax_window(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return Relax's attributes for ONNX's."""
    return {"strides": attributes["strides"], "padding": attributes["pads"], "dilation": attributes["dilations"]}


def _frame(shape: tuple[int, ...]) -> np.ndarray:
    return weights(*shape, seed=7)


def _conv_case(draw: random.Random, values: np.ndarray, groups: int, rule: str) -> Case:
    attributes, order = window(draw), draw.choice(ORDERS)
    values = weights(*values.shape[:2], *attributes["kernel_shape"])
    bias = weights(len(values))

    def make(emit: Any, x: Any) -> Any:
        turned = constant(values.transpose(["OIHW".index(axis) for axis in order]))
        sums = relax.op.nn.conv2d(
            x, turned, **_relax_window(attributes), groups=groups, data_layout="NHWC", kernel_layout=order
        )
        return emit(relax.op.nn.relu(emit(relax.op.add(emit(sums), constant(bias)))))

    nodes = [node("Conv", "x w b", "c", group=groups, **attributes), node("Relu", "c", "y")]
    shape = image(draw, values.shape[1] * groups)["x"]
    return make, {"x": _frame(shape)}, nodes, {"w": values, "b": bias}, rule


def convolution(draw: random.Random) -> Case:
    return _conv_case(
        draw, np.zeros((draw.choice((2, 5, 16, 40)), draw.choice((2, 3, 16, 33)), 0, 0)), 1, "convolution"
    )


def grouped_convolution(draw: random.Random) -> Case:
    groups = draw.choice((2, 3, 4))
    return _conv_case(
        draw, np.zeros((groups * draw.choice((1, 7, 20)), draw.choice((2, 9)), 0, 0)), groups, "convolution"
    )


def depthwise(draw: random.Random) -> Case:
    channels = odd(draw)
    return _conv_case(draw, np.zeros((channels, 1, 0, 0)), channels, "depthwise")


def several_kernels_by_channel(draw: random.Random) -> Case:
    channels = draw.choice((2, 3, 8, 17))
    return _conv_case(draw, np.zeros((channels * draw.choice((2, 3)), 1, 0, 0)), channels, "depthwise")


def many_kernels_by_channel(draw: random.Random) -> Case:
    channels = draw.choice((2, 3))
    return _conv_case(draw, np.zeros((channels * draw.choice((33, 40)), 1, 0, 0)), channels, "convolution")


def max_pool(draw: random.Random) -> Case:
    attributes, ceil = window(draw), draw.randint(0, 1)

    def make(emit: Any, x: Any) -> Any:
        pooled = relax.op.nn.max_pool2d(
            x, attributes["kernel_shape"], **_relax_window(attributes), ceil_mode=bool(ceil), layout="NHWC"
        )
        return emit(pooled)

    nodes = [node("MaxPool", "x", "y", ceil_mode=ceil, **attributes)]
    return make, {"x": _frame(image(draw, odd(draw))["x"])}, nodes, {}, "pool"


def average_pool(draw: random.Random) -> Case:
    attributes, include = window(draw), draw.randint(0, 1)
    attributes["dilations"] = [1, 1]

    def make(emit: Any, x: Any) -> Any:
        pooled = relax.op.nn.avg_pool2d(
            x, attributes["kernel_shape"], **_relax_window(attributes), count_include_pad=bool(include), layout="NHWC"
        )
        return emit(pooled)

    pool_attributes = {key: value for key, value in attributes.items() if key != "dilations"}
    nodes = [node("AveragePool", "x", "y", count_include_pad=include, **pool_attributes)]
    return make, {"x": _frame(image(draw, odd(draw))["x"])}, nodes, {}, "pool"


def transposed_convolution(draw: random.Random) -> Case:
    channels, makes, order = odd(draw), odd(draw), draw.choice(("IOHW", "HWOI"))
    size, stride, pad = draw.choice(((2, 2, 0), (4, 2, 1), (3, 2, 1), (5, 3, 2)))
    values = weights(channels, makes, size, size)

    def make(emit: Any, x: Any) -> Any:
        turned = constant(values.transpose(["IOHW".index(axis) for axis in order]))
        sums = relax.op.nn.conv2d_transpose(
            x, turned, strides=(stride, stride), padding=(pad,) * 4, data_layout="NHWC", kernel_layout=order
        )
        return emit(sums)

    nodes = [node("ConvTranspose", "x w", "y", strides=[stride] * 2, pads=[pad] * 4)]
    return make, {"x": _frame(image(draw, channels)["x"])}, nodes, {"w": values}, "conv_transpose"


KINDS = [
    convolution, grouped_convolution, depthwise, several_kernels_by_channel, many_kernels_by_channel, max_pool,
    average_pool, transposed_convolution,
]  # fmt: skip


def reference_result(folder: Path, case: Case) -> np.ndarray:
    _, inputs, nodes, constants, _ = case
    path = save(folder / "model.onnx", nodes, {"x": inputs["x"].shape}, ["y"], constants)
    result: np.ndarray = by_onnxruntime(path, inputs)["y"].transpose(TO_LAST)
    return result


def last(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(value.transpose(TO_LAST)) for name, value in inputs.items()}


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_result_is_that_of_onnxruntime(kind: Callable[[random.Random], Case], seed: int, tmp_path: Path) -> None:
    case = kind(random.Random(f"{kind.__name__}{seed}"))
    values = last(case[1])
    result, reference = run(module(values, case[0]), values), reference_result(tmp_path, case)
    np.testing.assert_allclose(result, reference, rtol=0, atol=1e-5 * np.abs(reference).max())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_is_turned(kind: Callable[[random.Random], Case]) -> None:
    make, inputs, _, _, rule = kind(random.Random(kind.__name__))
    rules = sorted(kernels(module(last(inputs), make)).values())
    # Copies of channels for several kernels are made by a general one.
    assert rules == [rule] or (kind is several_kernels_by_channel and rules == ["depthwise", "general"])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.one_in(2)
def test_several_cores_compute_the_same(kind: Callable[[random.Random], Case]) -> None:
    make, inputs, *_ = kind(random.Random(kind.__name__))
    values = last(inputs)
    single_core, three_cores = (
        run(module(values, make), values, cores, microarchitecture=eager_microarchitecture()) for cores in (1, 3)
    )
    np.testing.assert_allclose(three_cores, single_core, rtol=0, atol=1e-6 * float(np.abs(single_core).max()))


def test_a_chain_stays_as_it_is(tmp_path: Path) -> None:
    """Convolutions, a skip, concatenation, padding, pooling, a resize and a mean: no kernel turns an image."""
    values = {"w": weights(8, 6, 3, 3), "v": weights(5, 19, 1, 1)}

    def make(emit: Any, x: Any) -> Any:
        conv = emit(_conv(x, values["w"], padding=(1, 1, 1, 1)))
        skip = emit(relax.op.add(emit(relax.op.nn.relu(conv)), conv))
        image = emit(relax.op.concat([skip, x], 3))
        image = emit(relax.op.concat([image, emit(relax.op.strided_slice(skip, [3], [1], [6]))], 3))
        padded = emit(relax.op.nn.pad(image, [0, 0, 1, 1, 2, 0, 0, 0]))
        second_conv = emit(_conv(padded, values["v"]))
        pooled = emit(relax.op.nn.max_pool2d(second_conv, (2, 2), (2, 2), layout="NHWC"))
        larger = relax.op.image.resize2d(
            pooled, (9, 10), layout="NHWC", method="nearest_neighbor", coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )  # fmt: skip
        return emit(relax.op.mean(emit(larger), [1, 2]))

    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Add", "r c", "s"),
        node("Slice", "s from to axes", "p"),
        node("Concat", "s x p", "j", axis=1),
        node("Pad", "j pads", "q"),
        node("Conv", "q v", "o"),
        node("MaxPool", "o", "m", kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", "m - - size", "l", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("ReduceMean", "l", "y", axes=[2, 3], keepdims=0),
    ]
    numbers = {"from": [1], "to": [6], "axes": [1], "pads": [0, 0, 1, 2, 0, 0, 1, 0], "size": [2, 5, 9, 10]}
    constants = values | {name: np.array(value) for name, value in numbers.items()}
    x = weights(2, 6, 10, 11, seed=3)
    path = save(tmp_path / "model.onnx", nodes, {"x": x.shape}, ["y"], constants)
    reference, inputs = by_onnxruntime(path, {"x": x})["y"], last({"x": x})
    stage = module(inputs, make)
    result = run(stage, inputs)
    np.testing.assert_allclose(result, reference, rtol=0, atol=1e-5 * np.abs(reference).max())
    assert not [name for name in kernels(stage) if "transpose" in name]


def _conv(x: Any, values: np.ndarray, **attributes: Any) -> Any:
    turned = constant(values.transpose(2, 3, 1, 0))
    return relax.op.nn.conv2d(x, turned, data_layout="NHWC", kernel_layout="HWIO", **attributes)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_half_the_size(kind: str) -> None:
    x = {"x": weights(1, 8, 8, 16, seed=1)}
    stage = module(x, lambda emit, data: emit(_conv(data, weights(16, 16, 3, 3))))
    exact, rounded = run(stage, x), run(stage, x, numerics=Numerics("float32-exact", kind))
    assert 0 < np.abs(exact - rounded).max() / np.abs(exact).max() < Numerics("float32-exact", kind).tolerance
