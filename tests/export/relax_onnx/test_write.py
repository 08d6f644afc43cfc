"""What is written: names, versions, islands, layouts, whole numbers; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relax

import pipeline
from pipeline.errors import BuildError
from pipeline.export import relax_onnx
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.support import relax_models
from tests.support.onnx_models import by_onnxruntime, frame, in_stages, node, save, weights
from tests.support.onnx_stages import assert_same, run_exported
from tests.support.relax_modules import open_network

op = relax.op


def write(graph: Graph, **options: Any) -> Any:
    (part,) = extract.parts(graph, [])
    return relax_onnx.write(extract.module(part), "stage", **options)


def kinds(model: Any) -> list[str]:
    return [each.op_type for each in model.graph.node]


def run(module: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    model = relax_onnx.write(module, "stage")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def test_names_and_versions(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Split", "r half", "a b", axis=1), node("Add", "a r0", "s")]
    constants = {"half": np.array([2, 2]), "r0": weights(2)}
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (3, 4)}, ["s", "b", "r"], constants))
    model = write(graph)
    assert [value.name for value in model.graph.input] == ["x"]
    (part,) = extract.parts(graph, [])
    assert [value.name for value in model.graph.output] == [spec.name for spec in part.outputs]
    assert (model.opset_import[0].version, model.ir_version) == (13, 7)
    # The same operators at a version that was asked for.
    assert write(graph, opset=21).opset_import[0].version == 21


def test_an_operator_that_came_later(tmp_path: Path) -> None:
    nodes = [node("LayerNormalization", "x s", "n"), node("ReduceMax", "n", "y", axes=[1])]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (3, 4)}, ["y"], {"s": weights(4)}, opset=17))
    assert write(graph).opset_import[0].version == 17
    with pytest.raises(BuildError, match=r"as ONNX of opset 13: LayerNormalization \(17\) came later"):
        write(graph, opset=13)


@pytest.mark.parametrize("opset", [17, 18])
def test_axes_are_an_attribute_or_an_input(tmp_path: Path, opset: int) -> None:
    path = save(tmp_path / "m.onnx", [node("ReduceMax", "x", "y", axes=[1], keepdims=0)], {"x": (3, 4)}, ["y"])
    model = write(pipeline.read(path), opset=opset)
    values = {"x": weights(3, 4)}
    np.testing.assert_array_equal(run_model(tmp_path, model, values), values["x"].max(1))


def run_model(folder: Path, model: Any, values: dict[str, np.ndarray]) -> np.ndarray:
    onnx.save(model, folder / "written.onnx")
    (output,) = by_onnxruntime(folder / "written.onnx", values).values()
    return output


def test_an_output_that_is_an_input_or_leaves_twice() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.exp(x), "e")
        builder.emit_func_output(relax.Tuple([x, result, result]))
    model = relax_onnx.write(builder.get(), "stage")
    names = [value.name for value in model.graph.output]
    assert len(set(names)) == 3
    assert "x" not in names
    assert names[1] == "e"
    assert sorted(kinds(model)) == ["Exp", "Identity", "Identity"]


def test_channels_last_between_two_convolutions() -> None:
    """What is turned for one is not turned back for the next."""
    x = weights(1, 8, 8, 4)
    kernels = [relax_models.constant(weights(3, 3, 4, 4, seed=seed) / 6) for seed in (1, 2)]

    def make(emit: Callable[[Any], Any], data: Any) -> Any:
        for kernel in kernels:
            convolved = emit(op.nn.conv2d(data, kernel, padding=1, data_layout="NHWC", kernel_layout="HWIO"))
            data = emit(op.nn.relu(emit(op.add(convolved, relax_models.constant(weights(4))))))
        return data

    module = relax_models.module({"x": x}, make)
    assert kinds(relax_onnx.write(module, "stage")).count("Transpose") == 2
    np.testing.assert_allclose(run(module, {"x": x}), relax_models.run(module, {"x": x}), rtol=0, atol=1e-4)


@pytest.mark.parametrize("largest", [3, 100, 30000])
def test_sums_of_whole_numbers_are_exact(largest: int) -> None:
    """The largest have more digits than float32 numbers."""
    random = np.random.default_rng(0)
    dtype = "int16" if largest > 127 else "int8"
    x = random.integers(-largest, largest, (1, 64, 5, 5)).astype(dtype)
    w = random.integers(-127, 128, (8, 64, 3, 3)).astype(np.int16)

    def make(emit: Callable[[Any], Any], data: Any) -> Any:
        wide = emit(op.astype(data, "int16"))
        return op.nn.conv2d(wide, relax_models.constant(w), padding=1, out_dtype="int32")

    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(run(relax_models.module({"x": x}, make), {"x": x}), expected)


SHIFTED = np.array([[-(2**31), -7, -1, 0, 1, 9, 2**31 - 1]] * 2, np.int32)


@pytest.mark.parametrize("places", [0, 3, 30, 31, [[1], [31]]])
def test_shifts_round_down(places: Any) -> None:
    shift = np.array(places, np.int32)
    module = relax_models.module(
        {"x": SHIFTED}, lambda _, x: op.right_shift(x, relax_models.constant(np.broadcast_to(shift, SHIFTED.shape)))
    )
    np.testing.assert_array_equal(run(module, {"x": SHIFTED}), SHIFTED >> shift)


X = weights(2, 3, 4, 4)
OPERATORS: dict[str, Callable[..., Any]] = {
    "atan2": lambda _, x: op.atan2(x, op.negative(x)),
    "log_add_exp": lambda _, x: op.log_add_exp(x, x),
    "rms_norm": lambda _, x: op.nn.rms_norm(x, relax_models.constant(weights(4)), [-1]),
    "batch_norm of the last axis": lambda emit, x: relax.TupleGetItem(emit(op.nn.batch_norm(
        x, *(relax_models.constant(weights(4, seed=seed, positive=True)) for seed in range(4)),
        axis=3, training=False)), 0),
    "instance_norm of the last axis": lambda _, x: op.nn.instance_norm(
        x, relax_models.constant(weights(4)), relax_models.constant(weights(4, seed=1)), channel_axis=3, axes=[1, 2]),
    "pooling of the last axes": lambda _, x: op.nn.avg_pool2d(x, (2, 2), (2, 2), layout="NHWC"),
    "windows of several sizes": lambda _, x: op.nn.adaptive_avg_pool2d(x, (3, 2)),
    "circular padding": lambda _, x: op.nn.pad(x, [0, 0, 0, 0, 2, 1, 1, 0], "circular"),
    "repeat": lambda _, x: op.repeat(x, 3, 1),
    "cumprod": lambda _, x: op.cumprod(x, 3, exclusive=True),
    "sort": lambda _, x: op.sort(x, 2, descending=True),
    "argsort": lambda _, x: op.argsort(x, 2, dtype="int32"),
    "variance": lambda _, x: op.variance(x, [1, 3]),
    "trunc": lambda _, x: op.trunc(op.multiply(x, relax.const(3.0))),
    "prelu": lambda _, x: op.nn.prelu(x, relax_models.constant(weights(3)), 1),
    "take that clips": lambda _, x: op.take(x, relax_models.constant(np.array([-1, 9, 1])), 1, "clip"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators_that_onnx_models_do_not_have(name: str) -> None:
    module = relax_models.module({"x": X}, OPERATORS[name])
    expected = relax_models.run(module, {"x": X})
    assert_same({"y": run(module, {"x": X})}, {"y": expected})


def island_model(tmp_path: Path, *, opset: int = 17) -> Graph:
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4),
        node("Reshape", "c shape", "rows"),
        node("Binarizer", "rows", "l", domain="ai.onnx.ml", threshold=0.25),
        node("Abs", "l", "t"),
        node("Binarizer", "t", "m", domain="ai.onnx.ml", threshold=0.5),
        node("Relu", "m", "y"),
    ]
    constants = {"w": weights(8, 4, 3, 3), "shape": np.array([8, 64])}
    return pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 8, 8)}, ["y"], constants, opset=opset))


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_islands_of_onnx_are_written_as_they_are(tmp_path: Path, opset: int) -> None:
    graph = island_model(tmp_path, opset=opset)
    assert graph.islands
    model = write(graph)
    assert kinds(model).count("Binarizer") == 2
    assert {each.domain: each.version for each in model.opset_import}[""] == max(opset, 13)
    values = frame(graph)
    assert_same(run_exported(graph, values), by_onnxruntime(tmp_path / "m.onnx", values))


def test_an_island_with_a_graph_inside(tmp_path: Path) -> None:
    """Its inner nodes read a tensor of outside."""
    branches = {
        f"{name}_branch": onnx.helper.make_graph(
            [node(kind, "r", name)], name, [],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, 3))])
        for name, kind in (("then", "Exp"), ("else", "Neg"))
    }  # fmt: skip
    nodes = [
        node("Relu", "x", "r"), node("ReduceSum", "r", "sum", keepdims=0), node("Greater", "sum limit", "large"),
        node("If", "large", "i", **branches), node("Tanh", "i", "y"),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"limit": np.float32(2)})
    graph = pipeline.read(path)
    assert graph.islands
    for sign in (1, -1):
        values = {"x": sign * np.abs(weights(2, 3))}
        assert_same(run_exported(graph, values), by_onnxruntime(path, values))


def test_all_that_has_no_form_is_named() -> None:
    x = weights(4, 4)

    def make(emit: Callable[[Any], Any], data: Any) -> Any:
        first = emit(op.layout_transform(data, lambda i, j: (i // 2, j, i % 2)))
        second = emit(op.layout_transform(emit(op.exp(data)), lambda i, j: (j, i)))
        return relax.Tuple([first, second])

    with pytest.raises(BuildError, match=r"as ONNX: relax.layout_transform \(tensor '\w+'\); relax.layout_transform"):
        relax_onnx.write(relax_models.module({"x": x}, make), "stage")


def test_open_extents_are_refused() -> None:
    with pytest.raises(BuildError, match=r"relax.add \(tensor '\w+'\): its extents are not numbers"):
        relax_onnx.write(open_network(), "stage")


def test_stages_of_an_unsplit_model_agree(tmp_path: Path) -> None:
    """Every cut, so that whatever may be an input or an output of a stage is one."""
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4), node("Sigmoid", "c", "s"), node("Mul", "c s", "m"),
        node("MaxPool", "m", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Concat", "p p", "d", axis=1),
        node("GlobalAveragePool", "d", "g"), node("Flatten", "g", "f"), node("Softmax", "f", "y"),
    ]  # fmt: skip
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)}))
    values = frame(graph)
    expected = in_stages(graph, [], values)
    for end in graph.group_ends[:-1]:
        assert_same(run_exported(graph, values, [end]), expected)


def test_a_convolution_whose_result_is_read_in_both_orders() -> None:
    """An operand that is also there with its axes turned does not send its reader back and forth."""
    x = weights(1, 4, 8, 8)
    kernel = relax_models.constant(weights(8, 8, 3, 3) / 8)

    def make(emit: Callable[[Any], Any], data: Any) -> Any:
        turned = emit(op.permute_dims(data, [0, 3, 1, 2]))
        convolved = emit(op.nn.conv2d(turned, kernel, padding=1))
        back = emit(op.permute_dims(convolved, [0, 2, 3, 1]))
        first = emit(op.add(back, data))
        return op.add(emit(op.permute_dims(first, [0, 3, 1, 2])), emit(op.nn.relu(convolved)))

    module = relax_models.module({"x": x}, make)
    np.testing.assert_allclose(run(module, {"x": x}), relax_models.run(module, {"x": x}), rtol=0, atol=1e-4)


def test_an_island_without_fixed_shapes_is_refused() -> None:
    nodes = [node("Relu", "x", "r"), node("NonZero", "r", "n")]
    output = onnx.helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [2, None])
    source = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "m", [source], [output]), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    with pytest.raises(BuildError, match=r"onnxruntime \(tensor 'n'\): it exchanges what has no fixed shape"):
        write(pipeline.read(model))
