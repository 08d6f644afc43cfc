"""Matrix products over random shapes, against ONNX Runtime: of data by weights, and of data by data."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, in_stages, node, save, weights
from tests.support.random_networks import Drawn, check, check_cores
from tests.support.random_seeds import seeds


def _odd(draw: random.Random) -> int:
    return draw.choice((1, 3, 5, 7, 8, 15, 16, 17, 24, 33, 40, 48, 65, 80))


def _batch(draw: random.Random) -> tuple[int, ...]:
    return draw.choice(((1,), (3,), (2, 3), (1, 4), (2, 1)))


def by_weights(draw: random.Random) -> Drawn:
    batch, rows, depth, columns = _batch(draw), _odd(draw), _odd(draw), _odd(draw)
    nodes = [node("MatMul", "x w", "c"), node("Add", "c b", "d"), node("Relu", "d", "y")]
    return nodes, {"x": (*batch, rows, depth)}, {"w": weights(depth, columns), "b": weights(columns)}


def by_weights_and_more(draw: random.Random) -> Drawn:
    """The sums meet a tensor as large, and one value for each row of all batches."""
    batch, rows, depth, columns = _batch(draw), _odd(draw), _odd(draw), _odd(draw)
    nodes = [node("MatMul", "x w", "c"), node("Add", "c r", "d"), node("Mul", "d s", "y")]
    inputs = {"x": (*batch, rows, depth), "r": (*batch, rows, columns), "s": (rows, 1)}
    return nodes, inputs, {"w": weights(depth, columns)}


def by_turned_weights(draw: random.Random) -> Drawn:
    batch, rows, depth, columns = _batch(draw), _odd(draw), _odd(draw), _odd(draw)
    nodes = [node("Transpose", "w", "v", perm=[1, 0]), node("MatMul", "x v", "y")]
    return nodes, {"x": (*batch, rows, depth)}, {"w": weights(columns, depth)}


def by_data(draw: random.Random) -> Drawn:
    batch, rows, depth, columns = _batch(draw), _odd(draw), _odd(draw), _odd(draw)
    nodes = [node("MatMul", "x z", "c"), node("Mul", "c s", "d"), node("Add", "d m", "y")]
    inputs = {"x": (*batch, rows, depth), "z": (*batch, depth, columns), "m": (rows, columns)}
    return nodes, inputs, {"s": np.array(0.125, np.float32)}


def by_turned_data(draw: random.Random) -> Drawn:
    batch, rows, depth, columns = _batch(draw), _odd(draw), _odd(draw), _odd(draw)
    last = len(batch)
    turn = [*range(last), last + 1, last]
    nodes = [node("Transpose", "z", "v", perm=turn), node("MatMul", "x v", "y")]
    return nodes, {"x": (*batch, rows, depth), "z": (*batch, columns, depth)}, {}


def by_both_turned(draw: random.Random) -> Drawn:
    rows, depth, columns = _odd(draw), _odd(draw), _odd(draw)
    nodes = [
        node("Transpose", "x", "u", perm=[2, 0, 1]),
        node("Transpose", "z", "v", perm=[2, 1, 0]),
        node("MatMul", "u v", "y"),
    ]
    return nodes, {"x": (rows, depth, 2), "z": (columns, depth, 2)}, {}


def by_one_matrix(draw: random.Random) -> Drawn:
    """One of the two is the same for a part of the batch."""
    rows, depth, columns = _odd(draw), _odd(draw), _odd(draw)
    lhs_batch, rhs_batch = draw.choice((((2, 3), (3,)), ((2, 1), (1, 3)), ((4,), ()), ((), (4,)), ((3,), (2, 1))))
    return [node("MatMul", "x z", "y")], {"x": (*lhs_batch, rows, depth), "z": (*rhs_batch, depth, columns)}, {}


def of_weights(draw: random.Random) -> Drawn:
    """Weights on the left, or of several axes."""
    rows, depth, columns = _odd(draw), _odd(draw), _odd(draw)
    if draw.randint(0, 1):
        return [node("MatMul", "w x", "y")], {"x": (2, depth, columns)}, {"w": weights(rows, depth)}
    return [node("MatMul", "x w", "y")], {"x": (2, rows, depth)}, {"w": weights(2, depth, columns)}


def attention(draw: random.Random) -> Drawn:
    heads, size, length, context = draw.choice((1, 2, 3)), draw.choice((4, 8, 20)), _odd(draw), _odd(draw)
    width = heads * size
    values = {name: weights(width, width, seed=seed) / width for seed, name in enumerate("abcd")}
    values |= {"h": np.array([2, -1, heads, size]), "w": np.array([2, length, width])}
    values["s"] = np.array(size**-0.5, np.float32)
    nodes = [
        node("MatMul", f"{read} {by}", output)
        for read, by, output in (("x", "a", "q"), ("z", "b", "k"), ("z", "c", "v"))
    ]
    nodes += [node("Reshape", f"{each} h", f"{each}1") for each in "qkv"]
    turns = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    nodes += [node("Transpose", f"{each}1", f"{each}2", perm=turn) for each, turn in turns.items()]
    nodes += [
        node("MatMul", "q2 k2", "m"),
        node("Mul", "m s", "n"),
        node("Softmax", "n", "p", axis=-1),
        node("MatMul", "p v2", "o"),
        node("Transpose", "o", "o1", perm=[0, 2, 1, 3]),
        node("Reshape", "o1 w", "o2"),
        node("MatMul", "o2 d", "o3"),
        node("Add", "o3 x", "y"),
    ]
    return nodes, {"x": (2, length, width), "z": (2, context, width)}, values


def of_images(draw: random.Random) -> Drawn:
    """Both sides come from convolutions, whose channels are last inside of the stage."""
    channels, height, width = _odd(draw), draw.randint(2, 9), draw.randint(2, 9)
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x v", "b"),
        node("Transpose", "b", "c", perm=[0, 1, 3, 2]),
        node("MatMul", "a c", "y"),
    ]
    return nodes, {"x": (2, 3, height, width)}, {"w": weights(channels, 3, 1, 1), "v": weights(channels, 3, 1, 1)}


KINDS: list[Callable[[random.Random], Drawn]] = [
    by_weights, by_weights_and_more, by_turned_weights, by_data, by_turned_data, by_both_turned, by_one_matrix,
    of_weights, attention, of_images,
]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_result_is_that_of_onnxruntime(kind: Callable[[random.Random], Drawn], seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.one_in(2)
def test_several_cores_compute_the_same(kind: Callable[[random.Random], Drawn], tmp_path: Path) -> None:
    check_cores(kind, tmp_path)


def test_what_comes_before_the_product_may_join_it(tmp_path: Path) -> None:
    """A recurrent layer adds a part of an earlier tensor to a product, whose kernel then does not come first."""
    nodes = [
        node("Slice", "r from to along", "s"),
        node("Squeeze", "s along", "t"),
        node("Tanh", "x", "h"),
        node("MatMul", "h w", "c"),
        node("Add", "c b", "d"),
        node("Add", "d t", "y"),
    ]
    constants = {
        "w": weights(6, 24), "b": weights(24), "from": np.array([1]), "to": np.array([2]), "along": np.array([0]),
    }  # fmt: skip
    path = save(tmp_path / "model.onnx", nodes, {"x": (1, 2, 6), "r": (2, 2, 24)}, ["y"], constants)
    values = frame(graph := pipeline.read(path))
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize(
    ("dtype", "has_kernel"),
    [(onnx.TensorProto.FLOAT, True), (onnx.TensorProto.DOUBLE, False)],
    ids=["float32", "float64"],
)
@pytest.mark.parametrize("is_constant", [True, False], ids=["weights", "data"])
def test_products_of_float32_have_a_kernel(tmp_path: Path, dtype: int, has_kernel: bool, is_constant: bool) -> None:
    """The general schedule would take many times as long."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    inputs, constants = {"x": (2, 16, 24)}, {}
    if is_constant:
        constants["w"] = weights(24, 32).astype(kind)
    else:
        inputs["w"] = (2, 24, 32)
    dtypes = dict.fromkeys((*inputs, "y"), dtype)
    graph = pipeline.read(
        save(tmp_path / "m.onnx", [node("MatMul", "x w", "y")], inputs, ["y"], constants, dtypes=dtypes)
    )
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    kinds = {operator.kind for stage in bundle.general for operator in stage.operators}
    assert ("matmul" not in kinds) == has_kernel
