"""NumPy's rules give what TVM computes, and leave to TVM what NumPy defines otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeline.model.passes.numpy_rules import evaluate
from tests.support.onnx_models import weights

DATA = weights(4, 6)
INTEGERS = np.array([[-7, 3], [9, -1]], np.int32)
INDICES = np.array([[2, 0], [3, 3]], np.int64)

CALLS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "take rows": (lambda x, i: relax.op.take(x, i, axis=0), [DATA, INDICES]),
    "take columns": (lambda x, i: relax.op.take(x, i, axis=1), [DATA, INDICES]),
    "take of all elements": (relax.op.take, [DATA.reshape(24), INDICES]),
    "take, clipped": (lambda x, i: relax.op.take(x, i, axis=0, mode="clip"), [DATA, INDICES * 3 - 4]),
    "take, wrapped": (lambda x, i: relax.op.take(x, i, axis=0, mode="wrap"), [DATA, INDICES * 3 - 4]),
    "slice": (lambda x: relax.op.strided_slice(x, [1], [1], [5]), [DATA]),
    "slice with strides": (lambda x: relax.op.strided_slice(x, [0, 1], [0, 1], [4, 6], [2, 3]), [DATA]),
    "slice from the end": (lambda x: relax.op.strided_slice(x, [0, 1], [-3, -2], [-1, 100]), [DATA]),
    "slice backwards": (lambda x: relax.op.strided_slice(x, [1], [-1], [-100], [-2]), [DATA]),
    "concat": (lambda x, y: relax.op.concat([x, y], axis=1), [DATA, DATA[:, :2].copy()]),
    "concat along the last axis": (lambda x, y: relax.op.concat([x, y], axis=-1), [DATA, DATA]),
    "pad": (lambda x: relax.op.nn.pad(x, [1, 0, 2, 3], "constant", 0.5), [DATA]),
    "pad of integers": (lambda x: relax.op.nn.pad(x, [0, 1, 1, 0], "constant", 2), [INTEGERS]),
    "sum": (lambda x: relax.op.sum(x, axis=[1], keepdims=True), [DATA]),
    "sum of integers": (relax.op.sum, [INTEGERS]),
    "divide": (relax.op.divide, [DATA, weights(6)]),
    "exp": (relax.op.exp, [DATA]),
    "right shift": (relax.op.right_shift, [INTEGERS, np.array([1, 2], np.int32)]),
    "left shift": (relax.op.left_shift, [INTEGERS, np.array([1, 2], np.int32)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_rule_gives_what_tvm_computes(name: str) -> None:
    write, arrays = CALLS[name]
    values = evaluate(typed(write(*(relax.const(each) for each in arrays))))
    expected = by_tvm(write, arrays)
    assert values is not None
    assert (values.shape, values.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(values, expected, rtol=1e-6)


REFUSED: dict[str, Any] = {
    "an index beside the array": lambda: relax.op.take(relax.const(DATA), relax.const(INDICES + 9), axis=0),
    "a division of integers, which is cut off": lambda: relax.op.divide(relax.const(INTEGERS), relax.const(INTEGERS)),
    "a mirrored border": lambda: relax.op.nn.pad(relax.const(DATA), [1, 1, 1, 1], "reflect"),
    "an operator without a rule": lambda: relax.op.nn.softmax(relax.const(DATA)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_defines_otherwise_is_left_to_tvm(name: str) -> None:
    assert evaluate(REFUSED[name]()) is None


def typed(call: Any) -> Any:
    return relax.BlockBuilder().normalize(call)


def by_tvm(write: Callable[..., Any], arrays: list[np.ndarray]) -> np.ndarray:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(each.shape, str(each.dtype))) for i, each in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(write(*params))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    result_array: np.ndarray = machine["main"](*(tvm.runtime.tensor(each) for each in arrays)).numpy()
    return result_array
