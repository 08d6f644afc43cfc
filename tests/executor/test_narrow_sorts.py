"""Integers that TVM's sorts do not take are sorted, whatever the format of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

import pipeline
from tests.support.onnx_models import Arrays, in_stages
from tests.support.relax_models import module, run
from tests.support.relay_programs import HEADER

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "uint32", "uint64"]
DIRECTIONS = [False, True]
COUNT = 3

op = relax.op


def values(dtype: str) -> np.ndarray:
    """Return rows with both extremes, zero, and equal values."""
    if dtype == "bool":
        return np.array([[True, False, True, True, False, False], [False, True, False, True, True, False]])
    limits = np.iinfo(dtype)
    row = [limits.max, limits.min, 1, limits.max // 2 + 1, 0, limits.max - 1]
    return np.array([row, row[::-1], [1, 0, 1, 0, limits.max, 1]], dtype)


def order(x: np.ndarray, *, descending: bool) -> np.ndarray:
    """Return the stable order of each row."""
    if not descending:
        return np.argsort(x, axis=1, kind="stable")
    return np.asarray(x.shape[1] - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1])


def expected(dtype: str, *, descending: bool) -> list[np.ndarray]:
    """Return what is sorted, its indices, the first of both."""
    x = values(dtype)
    indices = order(x, descending=descending)
    ordered = np.take_along_axis(x, indices, 1)
    return [ordered, indices, ordered[:, :COUNT], indices[:, :COUNT]]


def check(outputs: Arrays, dtype: str, *, descending: bool) -> None:
    reference = expected(dtype, descending=descending)
    for actual, wanted in zip(outputs.values(), reference, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    assert [str(array.dtype) for array in list(outputs.values())[::2]] == [dtype, dtype]


@pytest.mark.parametrize("descending", DIRECTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.one_in(2)
def test_in_a_relax_module(dtype: str, descending: bool) -> None:
    def make(emit: Any, x: Any) -> Any:
        top = emit(op.topk(x, COUNT, 1, "both", descending, "int64"))
        parts = [emit(relax.TupleGetItem(top, number)) for number in range(2)]
        return relax.Tuple([emit(op.sort(x, 1, descending)), emit(op.argsort(x, 1, descending, "int32")), *parts])

    x = {"x": values(dtype)}
    graph = pipeline.read(module(x, make))
    check(in_stages(graph, [], x), dtype, descending=descending)


@pytest.mark.parametrize("descending", DIRECTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.one_in(2)
def test_in_a_relay_program(dtype: str, descending: bool, tmp_path: Any) -> None:
    ascends = int(not descending)
    rows, columns = values(dtype).shape
    path = tmp_path / "m.relay"
    path.write_text(
        f"{HEADER}def @main(%x: Tensor[({rows}, {columns}), {dtype}]) {{\n"
        f"  %0 = topk(%x, k={COUNT}, axis=1, is_ascend={bool(ascends)});\n"
        f"  (sort(%x, axis=1, is_ascend={ascends}), argsort(%x, axis=1, is_ascend={ascends}), %0.0, %0.1)\n}}\n"
    )
    check(in_stages(pipeline.read(path), [], {"x": values(dtype)}), dtype, descending=descending)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("descending", DIRECTIONS)
def test_in_a_pytorch_program(dtype: str, descending: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.support.torch_models import check_outputs, export

    def sort(_: Any, x: Any) -> Any:
        ordered, indices = torch.sort(x, dim=1, descending=descending, stable=True)
        return ordered, indices, torch.topk(x, COUNT, dim=1, largest=descending)[0]

    x = torch.from_numpy(values(dtype))
    check_outputs(export(sort, x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_median(dtype: str) -> None:
    x = values(dtype)
    middle = run(module({"x": x}, lambda emit, x: emit(relax.TupleGetItem(emit(op.median(x, [1])), 0))), {"x": x})
    np.testing.assert_array_equal(middle, np.sort(x, axis=1)[:, (x.shape[1] - 1) // 2])


def test_a_constant() -> None:
    x = values("int16")
    graph = pipeline.read(module({"y": x}, lambda emit, y: emit(op.add(y, emit(op.sort(relax.const(x, "int16"), 1))))))
    (result,) = in_stages(graph, [], {"y": np.zeros_like(x)}).values()
    np.testing.assert_array_equal(result, np.sort(x, axis=1))
