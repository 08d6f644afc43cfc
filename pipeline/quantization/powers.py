"""Powers of two: scales of a quantised ONNX model, rounded up.

Weights become even and biases odd.  Then all sums of products are odd, so that none lies halfway between two results:
ONNX rounds halves to the even neighbour, which would take VTA a quarter of a layer's time or so, and here it need not.
Nothing is lost against weights of seven bits, which ONNX Runtime advises for many processors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.scale_limits import ScaleLimits
from pipeline.errors import ModelError
from pipeline.quantization.bounds import Bounds
from pipeline.quantization.floats import axis_of

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_WEIGHT = 126
"""The largest even number of a signed byte."""

_INT32 = 2**31 - 1
_SUFFIX = "_quantized"


def restrict(model: Any, original: Any, limits: ScaleLimits) -> None:
    """Round a model's scales to powers of two within limits.

    Raises `ModelError` if a zero point is not 0. The model is of ONNX Runtime's quantiser, with signed bytes, and is
    changed.
    """
    from onnx import numpy_helper

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    floating = {tensor.name: numpy_helper.to_array(tensor) for tensor in original.graph.initializer}
    makers = {node.output[0]: node for node in model.graph.node}
    # Before anything is changed: a model that is refused stays as it was.
    _check(model, arrays)
    constants = _scales(model, arrays, floating, limits)
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and arrays.get(node.input[0], np.zeros(0)).dtype == np.int8:
            name = node.input[0]
            constants[name] = even(floating[name.removesuffix(_SUFFIX)], constants[node.input[1]], axis_of(node))
    # Last, since the unit of a bias is the product of the scales of its input and its weights.
    for node, scale in _biases(model, makers, {**arrays, **constants}):
        constants[node.input[1]] = scale
        constants[node.input[0]] = odd(floating[node.input[0].removesuffix(_SUFFIX)], scale)
    for tensor in model.graph.initializer:
        if tensor.name in constants:
            tensor.CopyFrom(numpy_helper.from_array(constants[tensor.name], tensor.name))


def _scales(model: Any, arrays: Arrays, floating: Arrays, limits: ScaleLimits) -> Arrays:
    """Return the scales of all tensors but biases. A bias has the scale of the sums it is added to."""
    pairs = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    names = dict.fromkeys(node.input[1] for node in pairs if not _is_bias(node, arrays))
    natural = {name: np.log2(next_power(arrays[name].astype(np.float64))) for name in names}
    biases = {node.input[0]: floating[node.input[0].removesuffix(_SUFFIX)] for node in pairs if _is_bias(node, arrays)}
    exponents = Bounds(model, arrays).raise_exponents(natural, biases, limits)
    return {name: np.exp2(values).astype(arrays[name].dtype) for name, values in exponents.items()}


def next_power(scale: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the next powers of two."""
    return np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(scale.dtype)


def even(weights: npt.NDArray[Any], scale: npt.NDArray[Any], axis: int) -> npt.NDArray[np.int8]:
    """Return weights as even numbers of one unit, or several."""
    shape = [1] * weights.ndim
    if scale.size > 1:
        shape[axis] = -1
    units = weights.astype(np.float64) / scale.astype(np.float64).reshape(shape if scale.size > 1 else ())
    # Not -128, though it is even: the range remains symmetric.
    return (2 * np.clip(np.rint(units / 2), -LARGEST_WEIGHT // 2, LARGEST_WEIGHT // 2)).astype(np.int8)


def odd(bias: npt.NDArray[Any], scale: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return a bias as odd numbers of units."""
    units = bias.astype(np.float64) / scale.astype(np.float64)
    # Both limits are odd themselves.
    numbers: npt.NDArray[np.int32] = np.clip(2 * np.floor(units / 2) + 1, -_INT32, _INT32).astype(np.int32)
    return numbers


def _check(model: Any, arrays: Arrays) -> None:
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and any(
            arrays[name].any() for name in node.input[2:]
        ):
            raise ModelError(f"{node.name!r} has a zero point other than 0")


def _is_bias(node: Any, arrays: Arrays) -> bool:
    values = arrays.get(node.input[0])
    return values is not None and values.dtype == np.int32


def _biases(model: Any, makers: dict[str, Any], arrays: Arrays) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
    """Yield the dequantiser of each bias with its sums' unit."""
    for node in model.graph.node:
        sources = [makers.get(name) for name in node.input]
        # Products with data, weights and bias, all quantised.
        if len(sources) != 3 or any(source is None or source.op_type != "DequantizeLinear" for source in sources):
            continue
        data, weights, bias = sources
        if bias is not None and data is not None and weights is not None and _is_bias(bias, arrays):
            yield bias, (arrays[data.input[1]] * arrays[weights.input[1]]).astype(np.float32)
