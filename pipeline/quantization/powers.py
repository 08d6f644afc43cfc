"""Powers of two: the scales of a quantised ONNX model are rounded up to them.

Weights become even and biases odd.  Then all sums of products are odd, so that none lies halfway between two results:
ONNX rounds halves to the even neighbour, which would take VTA a quarter of a layer's time or so, and here it need not.
Nothing is lost against weights of seven bits, which ONNX Runtime advises for many processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import ModelError
from pipeline.quantization.floats import axis_of

Arrays = dict[str, npt.NDArray[Any]]

_LARGEST = 126
_INT32 = 2**31 - 1
_SUFFIX = "_quantized"


def restrict(model: Any, plain: Any) -> None:
    """Change a quantised model so that all its scales are powers of two.

    Parameters
    ----------
    model : onnx.ModelProto
        As ONNX Runtime's quantiser made it, of signed bytes with zero points of 0; is changed.
    plain : onnx.ModelProto
        What it was made of.

    Raises
    ------
    ModelError
        If a zero point is not 0.
    """
    from onnx import numpy_helper

    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    floating = {each.name: numpy_helper.to_array(each) for each in plain.graph.initializer}
    made = {node.output[0]: node for node in model.graph.node}
    _check(model, arrays)
    changed: Arrays = {}
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and not _is_bias(node, arrays):
            changed[node.input[1]] = rounded_up(arrays[node.input[1]])
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and arrays.get(node.input[0], np.zeros(0)).dtype == np.int8:
            name = node.input[0]
            changed[name] = even(floating[name.removesuffix(_SUFFIX)], changed[node.input[1]], axis_of(node))
    for node, scale in _biases(model, made, {**arrays, **changed}):
        changed[node.input[1]] = scale
        changed[node.input[0]] = odd(floating[node.input[0].removesuffix(_SUFFIX)], scale)
    for each in model.graph.initializer:
        if each.name in changed:
            each.CopyFrom(numpy_helper.from_array(changed[each.name], each.name))


def rounded_up(scale: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the next powers of two."""
    return np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(scale.dtype)


def even(weights: npt.NDArray[Any], scale: npt.NDArray[Any], axis: int) -> npt.NDArray[np.int8]:
    """Return weights as even numbers of a unit, or of one for each place along an axis."""
    shape = [1] * weights.ndim
    if scale.size > 1:
        shape[axis] = -1
    units = weights.astype(np.float64) / scale.astype(np.float64).reshape(shape if scale.size > 1 else ())
    return (2 * np.clip(np.rint(units / 2), -_LARGEST // 2, _LARGEST // 2)).astype(np.int8)


def odd(bias: npt.NDArray[Any], scale: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return a bias as odd numbers of units."""
    units = bias.astype(np.float64) / scale.astype(np.float64)
    made: npt.NDArray[np.int32] = np.clip(2 * np.floor(units / 2) + 1, -_INT32, _INT32).astype(np.int32)
    return made


def _check(model: Any, arrays: Arrays) -> None:
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and any(
            arrays[name].any() for name in node.input[2:]
        ):
            raise ModelError(f"{node.name!r} has a zero point other than 0")


def _is_bias(node: Any, arrays: Arrays) -> bool:
    values = arrays.get(node.input[0])
    return values is not None and values.dtype == np.int32


def _biases(model: Any, made: dict[str, Any], arrays: Arrays) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
    """Yield who dequantises each bias, and the unit of the sums that it is added to."""
    for node in model.graph.node:
        sources = [made.get(name) for name in node.input]
        if len(sources) != 3 or any(each is None or each.op_type != "DequantizeLinear" for each in sources):
            continue
        data, weights, bias = sources
        if bias is not None and data is not None and weights is not None and _is_bias(bias, arrays):
            yield bias, (arrays[data.input[1]] * arrays[weights.input[1]]).astype(np.float32)
